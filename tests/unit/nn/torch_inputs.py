"""The inputs of torch's own test database of layers: weft's layers have the same results."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

import weft
from tests.unit.nn import twins
from weft import nn
from weft.eager.tensor import Tensor

# Layers that draw at random have no result to compare: their shapes are compared.
_DRAWN = ("Dropout", "RReLU", "FractionalMaxPool")

# Inputs that weft refuses, by label.
_REFUSED = {
    "BatchNorm?d * train": "statistics of an empty batch have no mean",
    "FractionalMaxPool3d *": "nn.gather takes at most as many indices as elements",
}


@dataclass(frozen=True)
class Case:
    """One input of torch's database for a class of ``torch.nn``, in training or not."""

    name: str
    number: int
    training: bool
    given: Any  # torch's ModuleInput

    @property
    def label(self) -> str:
        return f"{self.name} {self.number} {'train' if self.training else 'eval'}"


def cases() -> Iterator[Case]:
    """All inputs of torch's database with elements of float32."""
    import torch
    from torch.testing._internal.common_modules import module_db

    for info in module_db:
        for training in (True, False):
            torch.manual_seed(0)
            found = info.module_inputs_func(info, device="cpu", dtype=torch.float32,
                                            requires_grad=True, training=training)
            for number, given in enumerate(found):
                yield Case(info.module_cls.__name__, number, training, given)


def reason_for(case: Case) -> str | None:
    """Why weft refuses the input; ``None`` if it has to agree."""
    import torch

    given = case.given.forward_input.args
    is_full = all(not isinstance(x, torch.Tensor) or x.numel() for x in given)
    if case.name.startswith("BatchNorm") and is_full:
        return None
    return next((why for label, why in _REFUSED.items() if fnmatch(case.label, label)), None)


def to_weft(value: Any) -> Any:
    """A value of torch (tensor, dtype, function, module) as weft's, the same in containers."""
    import torch

    if isinstance(value, torch.Tensor):
        made = Tensor(value.detach().numpy().copy())
        return made.requires_grad_() if value.requires_grad else made
    if isinstance(value, torch.dtype):
        return getattr(weft, str(value).removeprefix("torch."))
    if isinstance(value, torch.nn.Module):
        return _module(value)
    if isinstance(value, tuple | list):
        return type(value)(to_weft(v) for v in value)
    if isinstance(value, dict):
        return {k: to_weft(v) for k, v in value.items()}
    if callable(value) and getattr(torch.nn.functional, getattr(value, "__name__", ""), None):
        return getattr(nn.functional, value.__name__)
    return value


def leaf_copy(value: Any) -> Any:
    """Tensors of torch, also in containers, as leaves of their own."""
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, tuple | list):
        return type(value)(leaf_copy(v) for v in value)
    if isinstance(value, dict):
        return {k: leaf_copy(v) for k, v in value.items()}
    return value


def _module(theirs: Any) -> Any:
    """weft's module with the class, the options and the state of a module of torch."""
    names = inspect.signature(type(theirs).__init__).parameters
    options = {k: to_weft(v) for k, v in vars(theirs).items() if k in names}
    if type(theirs).__name__ == "TransformerEncoderLayer":
        options |= {"d_model": theirs.linear1.in_features, "nhead": theirs.self_attn.num_heads,
                    "dim_feedforward": theirs.linear1.out_features, "dropout": theirs.dropout.p,
                    "batch_first": theirs.self_attn.batch_first,
                    "bias": theirs.linear1.bias is not None,
                    "activation": theirs.activation.__name__}
    ours = getattr(nn, type(theirs).__name__)(**options)
    twins.copy_state(theirs, ours)
    return ours


def check(case: Case) -> None:
    """Compare results, gradients of all float inputs and of parameters, and buffers."""
    import torch

    given = case.given
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    torch.manual_seed(0)
    theirs = getattr(torch.nn, case.name)(*args, **kwargs).to(torch.float32).train(case.training)
    ours = getattr(nn, case.name)(*to_weft(args), **to_weft(kwargs)).to("float32").train(
        case.training)
    call = leaf_copy((given.forward_input.args, given.forward_input.kwargs))
    call_w = to_weft(call)
    if case.name.startswith("Lazy"):
        with torch.no_grad(), weft.no_grad():
            theirs(*call[0], **call[1])
            ours(*call_w[0], **call_w[1])
    twins.copy_state(theirs, ours)
    y_t, y_w = (twins.leaves(m(*a, **k)) for m, (a, k) in ((theirs, call), (ours, call_w)))
    assert len(y_t) == len(y_w), "number of results"
    twins.backward(y_t, torch.tensor)
    twins.backward(y_w, Tensor)
    if case.name.startswith(_DRAWN) and case.training:
        assert [tuple(y.shape) for y in y_w] == [tuple(y.shape) for y in y_t]
        return
    for ours_y, theirs_y in zip(y_w, y_t, strict=True):
        twins.close(ours_y, theirs_y, 1e-4, "result")
    for ours_x, theirs_x in zip(twins.leaves(list(_flat(call_w))), twins.leaves(list(_flat(call))),
                                strict=True):
        if isinstance(theirs_x, torch.Tensor) and theirs_x.requires_grad:
            twins.close(ours_x.grad, theirs_x.grad, 1e-4, "gradient of an input")
    twins.close_states(ours, theirs, 1e-4)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


def kind_of(error: Exception) -> str:
    """What an error of a comparison is: a missing layer, a refused argument, a wrong value, …"""
    if isinstance(error, AttributeError) and "has no attribute" in str(error):
        return "missing name"
    if isinstance(error, TypeError):
        return "refused keyword"
    if isinstance(error, weft.WeftError):
        return "refused"
    if isinstance(error, AssertionError):
        text = str(error)
        return "wrong gradient" if "gradient" in text else "wrong value"
    return f"other ({type(error).__name__})"
