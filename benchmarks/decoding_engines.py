"""Engines that decode one model: weft, eager torch, ONNX Runtime. A worker process holds one.

``python -m benchmarks.decoding_engines ENGINE MODEL BATCH THREADS CAPACITY DTYPE`` reads commands
from standard input, one JSON object a line, and answers with the seconds that each took.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np

SIZES: dict[str, dict[str, Any]] = {
    # GPT-2 124M.
    "gpt2": {"kind": "GPT2", "bos_token_id": None, "eos_token_id": None},
    # As TinyLlama 1.1B: 22 layers, 32 heads that share 4 heads of keys and values.
    "llama": {"kind": "Llama", "vocab_size": 32000, "hidden_size": 2048,
              "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
              "num_key_value_heads": 4, "bos_token_id": None, "eos_token_id": None},
    # A mixture: 2 of 8 experts per token, as Mixtral, with 0.7 GB of weights.
    "mixtral": {"kind": "Mixtral", "vocab_size": 8000, "hidden_size": 1024,
                "intermediate_size": 1792, "num_hidden_layers": 4, "num_attention_heads": 16,
                "num_key_value_heads": 4, "num_local_experts": 8, "num_experts_per_tok": 2,
                "bos_token_id": None, "eos_token_id": None},
    # Small, to try the benchmark.
    "tiny": {"kind": "Llama", "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256,
             "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
             "bos_token_id": None, "eos_token_id": None},
}


def seeded_model(name: str, dtype: str = "float32") -> Any:
    """The transformers model of that name with seeded weights."""
    import torch
    import transformers

    sizes = dict(SIZES[name])
    kind = sizes.pop("kind")
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**sizes)
    model = {"GPT2": transformers.GPT2LMHeadModel, "Llama": transformers.LlamaForCausalLM,
             "Mixtral": transformers.MixtralForCausalLM}[kind]
    return model(config).eval().to(getattr(torch, dtype))


class Engine(Protocol):
    """Decodes a batch of sequences of equal length; returns the tokens with the largest logits."""

    def prefill(self, ids: np.ndarray) -> np.ndarray:
        """Forget all sequences, and read ``ids`` [batch, tokens]."""
        ...

    def step(self, ids: np.ndarray) -> np.ndarray:
        """Read one token of each sequence, [batch]."""
        ...


class WeftEngine:
    def __init__(self, model: Any, batch: int, threads: int, capacity: int) -> None:
        from weft.models import decoder_from_transformers

        dtype = str(model.dtype).removeprefix("torch.")
        self.decoder = decoder_from_transformers(model, capacity=capacity, batch=batch,
                                                 threads=threads, dtype=dtype)

    def prefill(self, ids: np.ndarray) -> np.ndarray:
        for slot in range(self.decoder.slots):
            self.decoder.free(slot)
        return self.decoder.prefill(list(range(len(ids))), list(ids)).argmax(-1)

    def step(self, ids: np.ndarray) -> np.ndarray:
        return self.decoder.step(list(range(len(ids))), ids).argmax(-1)

    def host_seconds(self, calls: int) -> float:
        """Seconds per step outside the compiled program: best step less best program call."""
        decoder, ids = self.decoder, np.full(self.decoder.slots, 5)
        program: list[float] = []
        run = decoder.executable

        class Timed:
            def __call__(self, *args: Any) -> Any:
                started = time.perf_counter()
                result = run(*args)
                program.append(time.perf_counter() - started)
                return result

        decoder.executable = Timed()  # type: ignore[assignment]
        whole = [_seconds(lambda: self.step(ids)) for _ in range(calls)]
        decoder.executable = run
        return min(w - p for w, p in zip(whole, program, strict=True))


class TorchEngine:
    def __init__(self, model: Any, batch: int, threads: int, capacity: int) -> None:
        import torch

        del batch, capacity
        torch.set_num_threads(threads)
        self._torch, self._model, self._cache = torch, model, None

    def prefill(self, ids: np.ndarray) -> np.ndarray:
        self._cache = None
        return self._run(ids)

    def step(self, ids: np.ndarray) -> np.ndarray:
        return self._run(ids[:, None])

    def _run(self, ids: np.ndarray) -> np.ndarray:
        with self._torch.inference_mode():
            out = self._model(self._torch.from_numpy(ids), past_key_values=self._cache,
                              use_cache=True, logits_to_keep=1)
        self._cache = out.past_key_values
        return out.logits[:, -1].argmax(-1).numpy()


class OnnxRuntimeEngine:
    """GroupQueryAttention on caches that are bound as input and as output."""

    def __init__(self, model: Any, batch: int, threads: int, capacity: int) -> None:
        import onnxruntime as ort

        from benchmarks.decoder_onnx import write_decoder
        from weft.models import architecture_of

        architecture, weights = architecture_of(model)
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 3
        with tempfile.TemporaryDirectory() as folder:
            path = write_decoder(architecture, weights, capacity, Path(folder))
            started = time.perf_counter()
            self._session = ort.InferenceSession(str(path), options,
                                                 providers=["CPUExecutionProvider"])
        # A user has the file.
        self.ready_seconds = time.perf_counter() - started
        shape = (batch, architecture.kv_heads, capacity, architecture.head_dim)
        self._caches = {f"{kind}{n}": ort.OrtValue.ortvalue_from_numpy(
            np.zeros(shape, np.float32)) for n in range(len(architecture.layers)) for kind in "kv"}
        self._names = {i.name for i in self._session.get_inputs()}
        self._length = 0

    def prefill(self, ids: np.ndarray) -> np.ndarray:
        self._length = 0
        return self._run(ids)

    def step(self, ids: np.ndarray) -> np.ndarray:
        return self._run(ids[:, None])

    def _run(self, ids: np.ndarray) -> np.ndarray:
        batch, count = ids.shape
        start, self._length = self._length, self._length + count
        feeds = {"ids": ids,
                 "positions": np.broadcast_to(np.arange(start, self._length), ids.shape).copy(),
                 "last_keys": np.full(batch, self._length - 1, np.int32),
                 "total": np.array(self._length, np.int32)}
        binding = self._session.io_binding()
        for name, value in feeds.items():
            if name in self._names:
                binding.bind_cpu_input(name, value)
        for name, cache in self._caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(f"new_{name}", cache)
        binding.bind_output("logits")
        self._session.run_with_iobinding(binding)
        return binding.get_outputs()[-1].numpy().argmax(-1)


ENGINES: dict[str, Callable[[Any, int, int, int], Engine]] = {
    "weft": WeftEngine, "torch": TorchEngine, "onnxruntime": OnnxRuntimeEngine}


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


class Worker:
    """Runs commands on an engine: ``prefill`` with a number of tokens, ``steps`` with a number."""

    def __init__(self, engine: Engine, vocab_size: int, batch: int) -> None:
        self._engine = engine
        self._vocab_size = vocab_size
        self._batch = batch
        self._next = np.zeros(batch, np.int64)

    def run(self, command: str, count: int) -> dict[str, Any]:
        if command == "prefill":
            rng = np.random.default_rng(0)
            ids = rng.integers(0, self._vocab_size, (self._batch, count))
            seconds = _seconds(lambda: self._keep(self._engine.prefill(ids)))
            return {"seconds": [seconds], "tokens": self._next.tolist()}
        if command == "host":
            return {"seconds": [self._engine.host_seconds(count)]}  # type: ignore[attr-defined]
        seconds = [_seconds(lambda: self._keep(self._engine.step(self._next)))
                   for _ in range(count)]
        return {"seconds": seconds, "tokens": self._next.tolist()}

    def _keep(self, tokens: np.ndarray) -> None:
        self._next = tokens.astype(np.int64)


def main() -> None:
    engine, name, batch, threads, capacity, dtype = sys.argv[1:]
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print
    started = time.perf_counter()
    model = seeded_model(name, dtype)
    built = time.perf_counter()
    made = ENGINES[engine](model, int(batch), int(threads), int(capacity))
    vocab_size = model.config.vocab_size
    worker = Worker(made, vocab_size, int(batch))
    if engine != "torch":
        del model
    ready = getattr(made, "ready_seconds", time.perf_counter() - built)
    print(json.dumps({"model": built - started, "ready": ready}), file=channel, flush=True)
    for line in sys.stdin:
        command, count = json.loads(line)
        print(json.dumps(worker.run(command, count)), file=channel, flush=True)


if __name__ == "__main__":
    main()
