"""``python -m benchmarks.accuracy``: what quantisation costs, weft beside its peers.

A small language model of characters is trained here, in a few minutes, on the licence and the
docstrings of Python's standard library. The figure is the perplexity of text that it has not read,
by weights in 4 bits in groups of 32: weft's schemes, and torchao's and NNCF's where they are
installed. The int8 models are in ``benchmarks.accuracy_int8``.
"""

from __future__ import annotations

import ast
import copy
import math
import sysconfig
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import weft

CONTEXT, WIDTH, HEADS, LAYERS = 64, 128, 4, 2
BATCH, CALIBRATION = 16, 16  # windows at a time, and batches of calibration
GROUP = 32
SCHEMES = ("int8_weight_only", "nf4", "int4_rtn", "int4_search", "int4_awq", "int4_gptq")
# The largest share by which the perplexity may grow.
BARS = {"int8_weight_only": 0.005, "int4_search": 0.02, "int4_awq": 0.01, "int4_gptq": 0.01}
# weft's schemes, and the peers' results by the same method.
SAME = {"int4_rtn": ("torchao rtn", "nncf rtn"),
        "int4_search": ("torchao hqq", "nncf scale estimation"),
        "int4_awq": ("nncf awq",), "int4_gptq": ("nncf gptq",)}


class Block(nn.Module):
    """Attention and a gated MLP, each after an RMS norm."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.attention_norm(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        y = self.mlp_norm(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Characters(nn.Module):
    """A decoder of characters: tokens [batch, CONTEXT] to logits."""

    def __init__(self, vocab: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, WIDTH)
        self.positions = nn.Parameter(torch.randn(CONTEXT, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocab, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def corpus() -> tuple[np.ndarray, int]:
    """The licence and docstrings of the standard library as tokens, and how many there are."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts = [path.read_text("utf-8") for path in library.glob("LICENSE*")]
    texts += [text for path in sorted(library.glob("*.py")) for text in docstrings(path)]
    joined = "\n\n".join(texts)
    known = sorted(char for char in set(joined) if char.isascii())
    numbers = {char: number for number, char in enumerate(known)}
    return np.array([numbers[char] for char in joined if char in numbers]), len(known)


def docstrings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (SyntaxError, UnicodeDecodeError):
        return
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            text = ast.get_docstring(node)
            if text and len(text) > 40:
                yield text


def windows(tokens: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Random windows of CONTEXT + 1 tokens."""
    starts = np.random.default_rng(seed).integers(0, len(tokens) - CONTEXT - 1, count)
    return np.stack([tokens[start:start + CONTEXT + 1] for start in starts])


def trained(tokens: np.ndarray, vocab: int, steps: int) -> Characters:
    """The model after ``steps`` steps of AdamW, with a cosine schedule."""
    torch.manual_seed(0)
    model = Characters(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        batch = torch.from_numpy(windows(tokens, BATCH, step))
        logits = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def perplexity(run: Callable[[np.ndarray], np.ndarray], batches: Sequence[np.ndarray]) -> float:
    """Exp of the mean negative log-probability of the next tokens."""
    total = 0.0
    for batch in batches:
        logits = run(np.ascontiguousarray(batch[:, :-1])).astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(-1, keepdims=True))
        total -= float(np.take_along_axis(logits, batch[:, 1:, None], -1).mean())
    return math.exp(total / len(batches))


def of_weft(model: Characters, scheme: str, data: list[np.ndarray], held: Sequence[np.ndarray]
            ) -> float:
    example = (torch.from_numpy(data[0]),)
    if scheme == "fp32":
        return perplexity(weft.compile(model, example_inputs=example), held)
    small = weft.quantize(model, data, scheme=scheme, example_inputs=example)
    return perplexity(weft.compile(small), held)


def of_torch(model: nn.Module, held: Sequence[np.ndarray]) -> float:
    def run(ids: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(ids)).float().numpy()

    return perplexity(run, held)


def torchao_results(model: Characters, _: list[np.ndarray], held: Sequence[np.ndarray]
                    ) -> Iterator[tuple[str, float]]:
    """torchao's round to nearest and HQQ; its GPTQ and AWQ take int4 on GPUs alone."""
    from torchao.quantization import IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerGroup

    def config(**options: str) -> IntxWeightOnlyConfig:
        return IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(GROUP), **options)

    for name, chosen in (("rtn", config()),
                         ("hqq", config(intx_choose_qparams_algorithm="hqq_scale_only"))):
        made = copy.deepcopy(model)
        quantize_(made, chosen)
        yield f"torchao {name}", of_torch(made, held)


def nncf_results(model: Characters, data: list[np.ndarray], held: Sequence[np.ndarray]
                 ) -> Iterator[tuple[str, float]]:
    """NNCF's methods over OpenVINO, scales in groups as weft's."""
    import nncf
    import openvino

    methods = {"rtn": {}, "awq": {"awq": True}, "scale estimation": {"scale_estimation": True},
               "gptq": {"gptq": True}}
    for name, options in methods.items():
        whole = openvino.convert_model(model, example_input=torch.from_numpy(data[0]))
        given = {**options, "dataset": nncf.Dataset(data)} if options else {}
        small = nncf.compress_weights(
            whole, mode=nncf.CompressWeightsMode.INT4_SYM, group_size=GROUP, all_layers=True,
            ratio=1.0, ignored_scope=nncf.IgnoredScope(types=["Gather"], validate=False), **given)
        compiled = openvino.compile_model(small, "CPU", {"INFERENCE_PRECISION_HINT": "f32",
                                                         "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"})
        yield f"nncf {name}", perplexity(lambda ids, c=compiled: c(ids)[0], held)


def peer_results(model: Characters, data: list[np.ndarray], held: Sequence[np.ndarray]
                 ) -> tuple[dict[str, float], list[str]]:
    """The results of peers by name, and why others are missing."""
    found: dict[str, float] = {}
    missing = []
    for results in (torchao_results, nncf_results):
        try:
            found.update(results(model, data, held))
        except Exception as error:  # noqa: BLE001 - peers fail in many ways, and the table says so
            missing.append(f"{results.__name__}: {type(error).__name__}: {error}")
    return found, missing


@click.command()
@click.option("--steps", default=2200, help="Steps of training.")
@click.option("--weights", type=click.Path(path_type=Path), default=None,
              help="A file that keeps the trained model.")
@click.option("--peers/--no-peers", default=True)
def main(steps: int, weights: Path | None, peers: bool) -> None:
    """Perplexity of a model of characters by scheme of quantisation; status 1 above a bar."""
    tokens, vocab = corpus()
    cut = len(tokens) * 9 // 10
    start = time.perf_counter()
    if weights is not None and weights.exists():
        model = Characters(vocab)
        model.load_state_dict(torch.load(weights))
        model.eval()
    else:
        model = trained(tokens[:cut], vocab, steps)
        if weights is not None:
            torch.save(model.state_dict(), weights)
    seconds = time.perf_counter() - start
    held = np.split(windows(tokens[cut:], 32 * BATCH, 2**31 + 1), 32)
    data = [np.ascontiguousarray(batch[:, :-1]) for batch in
            np.split(windows(tokens[:cut], CALIBRATION * BATCH, 2**31), CALIBRATION)]
    whole = of_weft(model, "fp32", data, held)
    found = {scheme: of_weft(model, scheme, data, held) for scheme in SCHEMES}
    others, missing = peer_results(model, data, held) if peers else ({}, [])
    failed = [scheme for scheme, bar in BARS.items() if found[scheme] > whole * (1 + bar)]
    failed += [f"{scheme} against {peer}" for scheme, names in SAME.items() for peer in names
               if peer in others and found[scheme] > others[peer] * 1.0005]
    table = Table(title=f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f} million "
                        f"parameters, trained in {seconds:.0f} s", box=None)
    for column in ("weights", "perplexity", "above fp32"):
        table.add_column(column, justify="left" if column == "weights" else "right")
    for name, value in {"weft fp32": whole, **{f"weft {k}": v for k, v in found.items()},
                        **others}.items():
        table.add_row(name, f"{value:.4f}", f"{value / whole - 1:+.2%}")
    console = Console(width=100)
    console.print(table)
    for line in (*missing, *(f"above its bar: {name}" for name in failed)):
        console.print(line, markup=False)
    raise SystemExit(bool(failed))


if __name__ == "__main__":
    main()
