"""Torch models with symbolic sizes at sizes 0, 1, 2, primes and others, beside torch itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import weft
from weft.frontend.torch import from_torch, torch_program
from weft.ir.module import IRModule
from weft.ir.shape import SymDim
from weft.ir.substitution import substitute_symbols
from weft.ir.symbol import name_of, range_of
from weft.runtime.sizes import evaluate as size_at
from weft.support.errors import WeftError
from weft.transform import evaluate
from weft.transform.analysis.graph import type_of

torch = pytest.importorskip("torch")
F = torch.nn.functional
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

SIZES = (0, 1, 2, 3, 4, 7, 8, 13)


class AsModule(torch.nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


def in_general(general: IRModule, sizes: Mapping[str, int]) -> bool:
    """Whether the program for all sizes takes these."""
    symbols = {s for p in general["main"].params for d in type_of(p).shape
               if isinstance(d, SymDim) for s in d.symbols()}
    return all(sizes[name_of(s)] in range_of(s) for s in symbols) and all(
        size_at(text, sizes) >= 0 for text in general.attrs.get("size_conditions", ()))


def compared(function: Callable[..., Any], shape: tuple[Any, ...], example: tuple[int, ...],
             sizes: Mapping[str, int], general: IRModule | None, program: Any) -> None:
    """One size: the general program where it holds, else the program for the size, beside torch."""
    given = tuple(size_at(s, sizes) if isinstance(s, str) else s for s in shape)
    x = torch.randn(given, generator=torch.Generator().manual_seed(0))
    try:
        expected = function(x)
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):
        expected = None
    if general is not None and in_general(general, sizes):
        assert expected is not None, f"torch refuses {sizes}, the program takes them"
        module = substitute_symbols(general, sizes)
    elif expected is None:
        with pytest.raises(WeftError):
            from_torch(program, inputs={"x": given})
        return
    else:
        module = from_torch(program, inputs={"x": given})
    with np.errstate(all="ignore"):
        found = evaluate(module, [x.numpy()])
    wanted = expected if isinstance(expected, (tuple, list)) else (expected,)
    for mine, theirs in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert np.shape(mine) == tuple(theirs.shape), sizes
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=2e-5, atol=2e-6)


def traced(function: Callable[..., Any], shape: tuple[Any, ...], example: tuple[int, ...]
           ) -> tuple[IRModule | None, Any]:
    program = torch_program(AsModule(function).eval(), example_inputs=(torch.randn(example),),
                            inputs={"x": shape})
    try:
        return from_torch(program, inputs={"x": shape}), program
    except WeftError:
        return None, program


# By name: the function, and whether one program runs all sizes for which its trace holds.
OF_ROWS: dict[str, tuple[Callable[..., Any], bool]] = {
    "squeeze": (lambda x: x.squeeze(0), True),
    "squeeze of a slice": (lambda x: x[1:].squeeze(0), True),
    "squeeze of all": (lambda x: x.squeeze(), True),
    "squeeze of halves": (lambda x: x[::2].squeeze(0) * 2, True),
    "first": (lambda x: x[0], True),
    "last": (lambda x: x[-1], True),
    "third from the end": (lambda x: x[-3], True),
    "slices": (lambda x: (x[1:], x[:-2], x[2:5], x[::3], x[-2:]), True),
    "var": (lambda x: x.var(0), True),
    "std": (lambda x: x.std(0, unbiased=False), True),
    "std of all": (lambda x: x.std(), True),
    "var then logsumexp": (lambda x: x.var(1).logsumexp(0), True),
    "mean": (lambda x: x.mean(0), True),
    "max": (lambda x: x.max(0).values, True),
    "max of a slice": (lambda x: x[1:].amax(0), True),
    "argmax": (lambda x: x.argmax(0), True),
    "any, all": (lambda x: ((x > 0).any(0), (x > 0).all(0)), True),
    "softmax": (lambda x: x.softmax(0), True),
    "logsumexp": (lambda x: x.logsumexp(0), True),
    "median": (lambda x: x.median(0).values, True),
    "mode": (lambda x: x.mode(0).values, True),
    "prod, cumsum": (lambda x: (x.prod(0), x.cumsum(0)), True),
    "sort": (lambda x: x.sort(0).values, True),
    "topk": (lambda x: x.topk(2, 0).values, True),
    "split": (lambda x: torch.cat([p * i for i, p in enumerate(x.split(3))]), True),
    "chunk": (lambda x: torch.cat([p * i for i, p in enumerate(x.chunk(2))]), False),
    "flip, roll": (lambda x: (x.flip(0), x.roll(2, 0), x.roll(-1, 0)), True),
    "unfold": (lambda x: x.unfold(0, 3, 2), True),
    "windows": (lambda x: F.max_pool2d(x[None], (3, 1)), True),
    "convolution": (lambda x: F.conv1d(x.T[None], torch.ones(2, 4, 3)), True),
    "padding": (lambda x: (F.pad(x, (0, 0, 1, 2)), F.pad(x, (0, 0, -1, 0))), True),
    "circular": (lambda x: F.pad(x.T[None], (1, 1), mode="circular"), True),
    "tile": (lambda x: (x.repeat(2, 1), x.repeat_interleave(2, 0)), True),
    "flatten": (lambda x: (x.flatten(), x.reshape(-1, 2), x.view(x.shape[0], 2, -1)), True),
    "matmul": (lambda x: (x @ x.T, x.T @ x), True),
    "attention": (lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]), True),
    "group norm": (lambda x: F.layer_norm(x, (4,)), True),
    "arange of a size": (lambda x: x + torch.arange(x.shape[0])[:, None], True),
    "eye": (lambda x: torch.eye(x.shape[0]) @ x, True),
    "branch on 1": (lambda x: x * 2 if x.shape[0] == 1 else x + 1, True),
    "branch on 0": (lambda x: x.sum() if x.shape[0] == 0 else x + 1, True),
    "branch on evenness": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x + 1, True),
    "branch on a bound": (lambda x: x * 2 if x.shape[0] > 6 else x + 1, True),
    "size in arithmetic": (lambda x: x * (x.shape[0] // 2) + min(x.shape[0], 5), True),
}


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("name", OF_ROWS)
def test_rows(name: str) -> None:
    function, has_general = OF_ROWS[name]
    general, program = traced(function, ("n", 4), (8, 4))
    assert (general is not None) == has_general
    for size in SIZES:
        compared(function, ("n", 4), (8, 4), {"n": size}, general, program)


OF_IMAGES: dict[str, Callable[..., Any]] = {
    "nearest, twice": (lambda x: F.interpolate(x, scale_factor=2.0)),
    "nearest, half": (lambda x: F.interpolate(x, scale_factor=0.5)),
    "nearest, three halves": (lambda x: F.interpolate(x, scale_factor=(1.5, 3.0))),
    "to sizes": (lambda x: F.interpolate(x, size=(5, 2 * x.shape[3]))),
    "bilinear": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")),
    "bilinear, corners": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear",
                                                  align_corners=True)),
    "bilinear to one": (lambda x: F.interpolate(x, size=(1, 7), mode="bilinear",
                                                align_corners=True)),
    "convolutions": (lambda x: F.max_pool2d(F.conv2d(x, torch.ones(2, 2, 3, 3), stride=2,
                                                     padding=1), 2)),
    "branch on a product": (lambda x: x * 2 if x.shape[2] * x.shape[3] > 20 else x + 1),
    "branch on an order": (lambda x: x * 2 if x.shape[2] < x.shape[3] else x + 1),
    "reshaped": (lambda x: x.flatten(2).squeeze(2).sum(-1)),
    "joined": (lambda x: torch.cat([x.amax(2), x.transpose(2, 3).amax(2)], 2).amax(2)),
}


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", OF_IMAGES)
def test_images(name: str) -> None:
    function = OF_IMAGES[name]
    shape, example = (1, 2, "h", "w"), (1, 2, 6, 8)
    general, program = traced(function, shape, example)
    assert general is not None
    for h, w in ((0, 3), (1, 1), (1, 4), (2, 2), (3, 1), (5, 7), (13, 2)):
        compared(function, shape, example, {"h": h, "w": w}, general, program)


def test_bounds_and_expressions() -> None:
    """Declared bounds, multiples and expressions mean what they mean for other models."""
    class Joined(torch.nn.Module):
        def forward(self, a: Any, b: Any, c: Any) -> Any:
            return torch.cat([a, b]) * c

    model = weft.compile(
        Joined().eval(),
        example_inputs=(torch.zeros(4, 3), torch.zeros(8, 3), torch.zeros(12, 3)),
        inputs={"a": ("2 <= n <= 64 and n % 2 == 0", 3), "b": ("2*n", 3), "c": ("3*n", 3)})
    assert model.general is not None
    assert [spec.shape for spec in model.inputs] == [("n", 3), ("2*n", 3), ("3*n", 3)]
    assert (model.manifest.symbols[0].low, model.manifest.symbols[0].high,
            model.manifest.symbols[0].multiple) == (2, 64, 2)
    ones = [np.ones((k * 6, 3), np.float32) for k in (1, 2, 3)]
    assert model(*ones).shape == (18, 3)
    for sizes, text in (((6, 11, 18), "'b' cannot have size 11"), ((3, 6, 9), "multiple of 2"),
                        ((66, 132, 198), "n is from 2 to 64")):
        with pytest.raises(WeftError, match=text):
            model(*(np.ones((s, 3), np.float32) for s in sizes))


def test_an_exported_program_runs_sizes_that_its_ranges_leave_out() -> None:
    """Ranges from 2 on are torch's assumption; its guards and operators decide about 1."""
    net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    program = torch.export.export(net, (torch.randn(3, 8),),
                                  dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
    model = weft.compile(program)
    for rows in (1, 2, 5):
        x = torch.randn(rows, 8)
        np.testing.assert_allclose(model(x), net(x).detach(), rtol=1e-5, atol=1e-6)
    assert model.sizes == ()  # one program ran them all
    assert model(torch.randn(0, 8)).shape == (0, 4)
    assert model.sizes == (((0, 8),),)


def test_a_guard_of_an_exported_program_is_checked() -> None:
    """torch's module refuses sizes for which its graph is wrong, and so does weft."""
    function = AsModule(lambda x: x * 2 if x.shape[0] * x.shape[1] > 20 else x + 1)
    every = torch.export.Dim.DYNAMIC
    program = torch.export.export(function, (torch.randn(6, 4),), dynamic_shapes=((every, every),))
    model = weft.compile(program)
    assert model(torch.ones(7, 3)).max() == 2
    with pytest.raises(WeftError, match="size 5"):
        model(torch.ones(5, 4))


def test_other_sizes_run_with_the_weights_of_the_compilation() -> None:
    """Training after the compilation changes no program, also one that is compiled later."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), AsModule(lambda x: x.squeeze(0))).eval()
    one = torch.randn(1, 4)
    expected = net(one).detach().clone()
    model = weft.compile(net, example_inputs=(torch.randn(3, 4),), inputs={"input": ("n", 4)})
    with torch.no_grad():
        net[0].weight.zero_()
    np.testing.assert_allclose(model(one), expected, rtol=1e-5, atol=1e-6)


def test_refused_sizes_are_named() -> None:
    model = weft.compile(AsModule(lambda x: x.amax(0)).eval(), example_inputs=(torch.randn(6, 4),),
                         inputs={"x": ("n", 4)})
    with pytest.raises(WeftError, match=r"'x' has size 0 \(axis 0, n\)"):
        model(np.zeros((0, 4), np.float32))
