"""A layer of weft and its twin of torch: the same state gives the same results and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft import nn
from weft.eager.tensor import Tensor


@dataclass(frozen=True)
class Twin:
    """A class of ``nn`` with the arguments of its constructor, and shapes of its inputs.

    An input is a shape (random floats), or an array. ``call`` are keywords of the call; arrays
    among them become tensors.
    """

    name: str
    args: tuple[Any, ...]
    inputs: Sequence[Any]
    options: dict[str, Any] = field(default_factory=dict)
    call: dict[str, Any] = field(default_factory=dict)
    eval: bool = False
    low: float = -2.0
    high: float = 2.0
    tolerance: float = 2e-5

    @property
    def label(self) -> str:
        options = ",".join(f"{k}={v}" for k, v in self.options.items() if not hasattr(v, "shape"))
        return f"{self.name}({','.join(map(str, self.args))};{options};{list(self.call)})"


def arrays_of(inputs: Sequence[Any], low: float, high: float) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.uniform(low, high, x).astype(np.float32) if isinstance(x, tuple) else x
            for x in inputs]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [leaf for v in value for leaf in leaves(v)]
    return [] if value is None else [value]


def _convert(value: Any, make: Callable[[np.ndarray], Any]) -> Any:
    if isinstance(value, np.ndarray):
        return make(value)
    if isinstance(value, tuple | list):
        return type(value)(_convert(v, make) for v in value)
    if isinstance(value, dict):
        return {k: _convert(v, make) for k, v in value.items()}
    return value


def copy_state(source: Any, target: nn.Module) -> None:
    """Load the state of a module of torch, as arrays of NumPy."""
    target.load_state_dict({k: v.detach().numpy() for k, v in source.state_dict().items()})


def check(twin: Twin) -> None:
    """Compare results, gradients of inputs and parameters, and buffers."""
    import torch

    torch.manual_seed(0)
    theirs = getattr(torch.nn, twin.name)(*_convert(twin.args, torch.tensor),
                                          **_convert(twin.options, torch.tensor))
    ours = getattr(nn, twin.name)(*_convert(twin.args, Tensor), **_convert(twin.options, Tensor))
    copy_state(theirs, ours)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    if twin.eval:
        theirs.eval()
        ours.eval()
    arrays = arrays_of(twin.inputs, twin.low, twin.high)
    learned = [isinstance(x, tuple) for x in twin.inputs]
    x_t, x_w = ([make(a).requires_grad_() if leaf else make(a)
                 for a, leaf in zip(arrays, learned, strict=True)]
                for make in (torch.tensor, Tensor))
    y_t = leaves(theirs(*x_t, **_convert(twin.call, torch.tensor)))
    y_w = leaves(ours(*x_w, **_convert(twin.call, Tensor)))
    assert len(y_t) == len(y_w)
    backward(y_t, torch.tensor)
    backward(y_w, Tensor)
    for ours_y, theirs_y in zip(y_w, y_t, strict=True):
        close(ours_y, theirs_y, twin.tolerance, "result")
    for i, (ours_x, theirs_x) in enumerate(zip(x_w, x_t, strict=True)):
        close(ours_x.grad, theirs_x.grad, twin.tolerance, f"gradient of input {i}")
    close_states(ours, theirs, twin.tolerance)


def close_states(ours: nn.Module, theirs: Any, tolerance: float) -> None:
    """Compare the gradients of the parameters, and the buffers."""
    for (name, p_w), p_t in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        close(p_w.grad, p_t.grad, tolerance, f"gradient of {name}")
    for (name, b_w), b_t in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        close(b_w, b_t, tolerance, f"buffer {name}")


def backward(results: list[Any], make: Callable[[np.ndarray], Any]) -> None:
    """Backward of a sum with different weights for all elements."""
    total = None
    for result in results:
        if not result.is_floating_point() or not result.requires_grad:
            continue
        rng = np.random.default_rng(1)
        weights = make(np.asarray(rng.uniform(0.5, 1.5, tuple(result.shape)), np.float32))
        term = (result * weights).sum()
        total = term if total is None else total + term
    if total is not None:
        total.backward()


def close(ours: Any, theirs: Any, tolerance: float, what: str) -> None:
    if theirs is None or ours is None:
        assert theirs is None or not theirs.detach().numpy().any(), f"{what}: None"
        assert ours is None or not np.asarray(ours.detach()).any(), f"{what}: not None"
        return
    expected = theirs.detach().numpy()
    got = ours.detach().numpy()
    assert got.shape == expected.shape, what
    assert got.dtype == expected.dtype, what
    scale = max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale,
                               err_msg=what)
