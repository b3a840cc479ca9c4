"""Engines that decode one GGUF file of seeded weights: weft and llama.cpp, one a process.

``python -m benchmarks.quantized_engines ENGINE PATH BATCH THREADS CAPACITY`` answers the commands
of ``benchmarks.decoding_engines``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.decoding_engines import Engine, Worker
from weft.op.nn.block_quantized import random_blocks
from weft.topi.nn.block_formats import FORMATS

# Layers, width, width inside of a layer, heads, heads of keys and values, tokens.
SHAPES: dict[str, tuple[int, int, int, int, int, int]] = {
    "llama-0.66b": (12, 2048, 5632, 32, 4, 32000), "llama-1.1b": (22, 2048, 5632, 32, 4, 32000),
    "gpt2": (12, 768, 3072, 12, 12, 50257), "tiny": (2, 256, 512, 4, 2, 512)}
CONTEXT = 1024


def write_model(path: Path, name: str, kind: str) -> int:
    """Write a GGUF file of random blocks by the package ``gguf``; the bytes a step reads."""
    import gguf

    layers, width, inner, heads, kv_heads, tokens = SHAPES[name]
    is_gpt2 = name == "gpt2"
    writer = gguf.GGUFWriter(path, "gpt2" if is_gpt2 else "llama")
    writer.add_block_count(layers)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_vocab_size(tokens)
    writer.add_tokenizer_model("none")
    (writer.add_layer_norm_eps if is_gpt2 else writer.add_layer_norm_rms_eps)(1e-5)
    rng, read = np.random.default_rng(0), 0
    form, stored = FORMATS[kind], gguf.GGMLQuantizationType[kind.upper()]

    def matrix(tensor: str, rows: int, columns: int, *, is_read: bool = True) -> None:
        nonlocal read
        data = random_blocks(form, rows, columns // form.elements, seed=read % 9973,
                             deviation=columns ** -0.5)
        writer.add_tensor(f"{tensor}.weight", data, raw_dtype=stored)
        read += data.nbytes * is_read

    def vector(tensor: str, size: int, *, is_norm: bool) -> None:
        values = (is_norm + rng.normal(size=size) / 8).astype(np.float32)
        writer.add_tensor(tensor, values)

    def norm(tensor: str) -> None:
        vector(f"{tensor}.weight", width, is_norm=True)
        if is_gpt2:
            vector(f"{tensor}.bias", width, is_norm=False)

    matrix("token_embd", tokens, width, is_read=False)
    matrix("output", tokens, width)
    norm("output_norm")
    if is_gpt2:
        writer.add_tensor("position_embd.weight",
                          rng.normal(size=(CONTEXT, width), scale=0.02).astype(np.float32))
    kv = width // heads * kv_heads
    projections = ((("attn_qkv", width + 2 * kv, width),) if is_gpt2 else
                   (("attn_q", width, width), ("attn_k", kv, width), ("attn_v", kv, width),
                    ("ffn_gate", inner, width)))
    for number in range(layers):
        for part, rows, columns in (*projections, ("attn_output", width, width),
                                    ("ffn_up", inner, width), ("ffn_down", width, inner)):
            matrix(f"blk.{number}.{part}", rows, columns)
            if is_gpt2:
                vector(f"blk.{number}.{part}.bias", rows, is_norm=False)
        norm(f"blk.{number}.attn_norm")
        norm(f"blk.{number}.ffn_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


class WeftEngine:
    def __init__(self, path: Path, batch: int, threads: int, capacity: int) -> None:
        from weft.models import CompiledDecoder
        from weft.models.gguf.reader import read_gguf
        from weft.models.gguf.translate import architecture_of_gguf

        architecture, weights = architecture_of_gguf(read_gguf(path))
        self.vocab_size = architecture.vocab_size
        self.decoder = CompiledDecoder(architecture, weights, batch=batch, capacity=capacity,
                                       activations="int8", threads=threads)

    def prefill(self, ids: np.ndarray) -> np.ndarray:
        for slot in range(self.decoder.slots):
            self.decoder.free(slot)
        return self.decoder.prefill(list(range(len(ids))), list(ids)).argmax(-1)

    def step(self, ids: np.ndarray) -> np.ndarray:
        return self.decoder.step(list(range(len(ids))), ids).argmax(-1)


class LlamaEngine:
    """llama.cpp through the C interface that ``llama-cpp-python`` gives."""

    def __init__(self, path: Path, batch: int, threads: int, capacity: int) -> None:
        import llama_cpp as api

        self._api = api
        api.llama_backend_init()
        self._model = api.llama_model_load_from_file(
            str(path).encode(), api.llama_model_default_params())
        if not self._model:
            raise RuntimeError(f"llama.cpp does not read {path}")
        options = api.llama_context_default_params()
        options.n_ctx, options.n_seq_max = capacity * batch, batch
        options.n_batch = options.n_ubatch = max(512, batch)
        options.n_threads = options.n_threads_batch = threads
        self._context = api.llama_init_from_model(self._model, options)
        self.vocab_size = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self._model))
        self._length = 0

    def prefill(self, ids: np.ndarray) -> np.ndarray:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        self._length = 0
        rows = [self._run(ids[slot:slot + 1], slot) for slot in range(len(ids))]
        self._length = ids.shape[1]
        return np.concatenate(rows)

    def step(self, ids: np.ndarray) -> np.ndarray:
        result = self._run(ids[:, None], 0)
        self._length += 1
        return result

    def _run(self, ids: np.ndarray, first: int) -> np.ndarray:
        """The tokens after rows of ids, which belong to the sequences from ``first`` on."""
        api, (rows, count) = self._api, ids.shape
        batch = api.llama_batch_init(ids.size, 0, 1)
        batch.n_tokens = ids.size
        for n in range(ids.size):
            row, at = divmod(n, count)
            batch.token[n], batch.pos[n] = int(ids[row, at]), self._length + at
            batch.n_seq_id[n], batch.seq_id[n][0] = 1, first + row
            batch.logits[n] = at == count - 1
        if api.llama_decode(self._context, batch):
            raise RuntimeError("llama.cpp cannot decode")
        last = [api.llama_get_logits_ith(self._context, (row + 1) * count - 1)
                for row in range(rows)]
        found = [np.ctypeslib.as_array(logits, (self.vocab_size,)).argmax() for logits in last]
        api.llama_batch_free(batch)
        return np.array(found)


ENGINES: dict[str, Callable[[Path, int, int, int], Any]] = {
    "weft": WeftEngine, "llama.cpp": LlamaEngine}


def main() -> None:
    name, path, batch, threads, capacity = sys.argv[1:]
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries may print
    started = time.perf_counter()
    engine = ENGINES[name](Path(path), int(batch), int(threads), int(capacity))
    made: Engine = engine
    worker = Worker(made, engine.vocab_size, int(batch))
    print(json.dumps({"ready": time.perf_counter() - started}), file=channel, flush=True)
    for line in sys.stdin:
        print(json.dumps(worker.run(*json.loads(line))), file=channel, flush=True)


if __name__ == "__main__":
    main()
