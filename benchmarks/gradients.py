"""Cost of gradients: forward and backward over forward, beside torch, and per convolution.

``python -m benchmarks.gradients`` differentiates small models with respect to all their parameters
(``weft.value_and_grad`` of an exported loss) and compares the gradients with torch's before it
measures. ``--layers`` measures the two gradients of ResNet-50's convolutions over the forward pass.
All in one process on one thread, in interleaved rounds; the minimum of each is reported.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import weft
from benchmarks import torch_language
from weft import op
from weft.compiler.report.sizes import arena_bytes_at
from weft.ir.expr import Function, var
from weft.ir.module import IRModule
from weft.runtime.devices.cpu.threads import set_num_threads

Run = Callable[[], Any]
MAX_ERROR = 5e-3
# Input channels, height and width, filters, kernel, stride, padding: layers of ResNet-50.
LAYERS = ((3, 224, 64, 7, 2, 3), (64, 56, 64, 1, 1, 0), (64, 56, 64, 3, 1, 1),
          (64, 56, 256, 1, 1, 0), (256, 56, 64, 1, 1, 0), (128, 56, 128, 3, 2, 1),
          (128, 28, 128, 3, 1, 1), (512, 28, 128, 1, 1, 0), (256, 14, 256, 3, 1, 1),
          (1024, 14, 256, 1, 1, 0), (512, 7, 512, 3, 1, 1), (512, 7, 2048, 1, 1, 0))


class Residual(nn.Module):
    def __init__(self, size: int, stride: int) -> None:
        super().__init__()
        wide = size * stride
        self.body = nn.Sequential(
            nn.Conv2d(size, wide, 3, stride, 1, bias=False), _norm(wide), nn.ReLU(),
            nn.Conv2d(wide, wide, 3, 1, 1, bias=False), _norm(wide))
        self.skip = nn.Conv2d(size, wide, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def _norm(size: int) -> nn.Module:
    """Batch norm without running averages, so that the loss changes no buffer."""
    return nn.BatchNorm2d(size, track_running_stats=False)


def _resnet() -> tuple[nn.Module, torch.Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False), _norm(32), nn.ReLU(), Residual(32, 1),
        Residual(32, 2), Residual(64, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))
    return model, torch.randn(8, 3, 32, 32)


def _mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return nn.Sequential(*layers), torch.randn(64, 256)


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(x)[0][:, -1])


def _gpt2() -> tuple[nn.Module, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=1000, n_positions=128, n_embd=256, n_layer=2, n_head=4,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = GPT2LMHeadModel(config)
    return torch_language.Output(model, "logits", ("input_ids",), use_cache=False), \
        torch.randint(0, 1000, (2, 128))


def _bert() -> tuple[nn.Module, torch.Tensor]:
    from transformers import BertConfig, BertModel

    config = BertConfig(vocab_size=1000, hidden_size=256, num_hidden_layers=2,
                        num_attention_heads=4, intermediate_size=1024, hidden_dropout_prob=0.0,
                        attention_probs_dropout_prob=0.0)
    model = BertModel(config, add_pooling_layer=False)
    return torch_language.Output(model, "last_hidden_state", ("input_ids",)), \
        torch.randint(0, 1000, (2, 128))


MODELS: Mapping[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "mlp": _mlp, "resnet": _resnet, "lstm": lambda: (_Recurrent(), torch.randn(8, 32, 64)),
    "bert": _bert, "gpt2": _gpt2,
}


class Loss(nn.Module):
    """A weighted mean of a model's result, with its parameters as further inputs."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.inner = [model]  # in a list: the export sees no parameters
        self.names = names

    def forward(self, x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, parameters, strict=True))
        result = torch.func.functional_call(self.inner[0], named, (x,))
        weights = torch.cos(torch.arange(result.numel(), dtype=torch.float32))
        return (result * weights.reshape(result.shape)).mean()


def _minima(runs: Mapping[str, Run], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(runs, float("inf"))
    for run in runs.values():
        run()
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def _model_row(name: str, rounds: int) -> list[str]:
    torch.manual_seed(0)
    model, x = MODELS[name]()
    parameters = {n: p.detach().requires_grad_() for n, p in model.named_parameters()}
    loss = Loss(model, tuple(parameters))
    values = tuple(parameters.values())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(loss.train(), (x, *values))
    forward = weft.compile(exported)
    started = time.perf_counter()
    mod = weft.value_and_grad(exported, argnums=tuple(range(1, 1 + len(values))), training=True,
                              unused="zeros")
    made = time.perf_counter() - started
    both = weft.compile(mod)
    arrays = [x.numpy(), *(v.detach().numpy() for v in values)]
    wanted = torch.autograd.grad(loss(x, *values), values, materialize_grads=True)
    _, *found = both(*arrays)
    for got, grad in zip(found, wanted, strict=True):
        # In the norm: a rounding error may flip a ReLU, which changes single elements.
        error = float(np.linalg.norm(got - grad.numpy()))
        if error > MAX_ERROR * max(float(grad.norm()), 1e-6):
            raise click.ClickException(f"{name}: a gradient differs by {error:.2e}")

    def eager() -> Any:
        return torch.autograd.grad(loss(x, *values), values, materialize_grads=True)

    runs: dict[str, Run] = {"forward": lambda: forward(*arrays), "both": lambda: both(*arrays),
                            "eager": eager, "eager forward": lambda: loss(x, *values)}
    best = _minima(runs, rounds)
    arena = arena_bytes_at(both.manifest, {}) / 1e6
    return [name, f"{best['forward'] * 1e3:.2f}", f"{best['both'] * 1e3:.2f}",
            f"{best['both'] / best['forward']:.2f}", f"{best['both'] / best['eager']:.2f}",
            f"{best['eager'] / best['eager forward']:.2f}", f"{arena:.1f}", f"{made:.2f}"]


def _layer_row(layer: tuple[int, ...], batch: int, rounds: int) -> list[str]:
    channels, size, filters, kernel, stride, padding = layer
    x, w = var("x", (batch, channels, size, size)), var("w", (filters, channels, kernel, kernel))
    y = op.nn.conv2d(x, w, strides=(stride, stride), padding=(padding,) * 4)
    forward = weft.compile(Function((x, w), y))
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=p.shape).astype(np.float32) for p in forward.inputs]
    result = forward(*arrays)
    dy = rng.normal(size=result.shape).astype(np.float32)
    runs: dict[str, Run] = {"forward": lambda: forward(*arrays)}
    for name in ("x", "w"):
        mod = weft.vjp(IRModule.from_expr(Function((x, w), y)), with_respect_to=name)
        main = mod["main"]
        grad = main.body.fields[1]
        only = weft.compile(mod.with_functions({"main": main.replace(
            body=grad, ret_type=None, checked_type=None)}))
        runs[name] = lambda only=only: only(*arrays, dy)
    best = _minima(runs, rounds)
    flops = 2 * result.size * channels * kernel * kernel
    text = f"{channels}x{size}x{size} {kernel}x{kernel}/{stride} -> {filters}"
    return [text, f"{best['forward'] * 1e6:.0f}", f"{flops / best['forward'] / 1e9:.0f}",
            f"{best['x'] / best['forward']:.2f}", f"{best['w'] / best['forward']:.2f}"]


@click.command()
@click.option("--model", "models", type=click.Choice(list(MODELS)), multiple=True,
              default=tuple(MODELS))
@click.option("--layers", is_flag=True, help="the gradients of ResNet-50's convolutions")
@click.option("--batch", type=int, default=1, help="images of a layer")
@click.option("--rounds", type=int, default=20)
def main(models: tuple[str, ...], *, layers: bool, batch: int, rounds: int) -> None:
    """Time of gradients over that of the forward pass."""
    set_num_threads(1)
    torch.set_num_threads(1)
    if layers:
        table = Table("convolution", "forward us", "GFLOP/s", "data gradient / forward",
                      "weight gradient / forward")
        for layer in LAYERS:
            table.add_row(*_layer_row(layer, batch, rounds))
    else:
        table = Table("model", "forward ms", "both ms", "both / forward", "both / torch eager",
                      "the same ratio of eager", "arena MB", "seconds to make")
        for name in models:
            table.add_row(*_model_row(name, rounds))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
