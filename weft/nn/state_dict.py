"""state_dict and load_state_dict: the values of a module by torch's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.parameter import Parameter
from weft.support.errors import WeftError

if TYPE_CHECKING:
    from weft.nn.modules.module import Module

EXTRA_STATE = "_extra_state"


class StateDictError(WeftError):
    """A state dict that does not fit the module: keys missing or unexpected, shapes that differ."""

    code = "E0511"


class IncompatibleKeys(NamedTuple):
    """What ``load_state_dict(strict=False)`` left out."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class _Slot(NamedTuple):
    """A tensor of a module that the state dict holds."""

    key: str
    module: Module
    name: str
    tensor: Tensor


def _slots(root: Module, prefix: str = "") -> Iterator[_Slot]:
    """The parameters and persistent buffers in torch's order; a shared one under each name."""
    for path, module in _all_modules(root, prefix):
        for name, tensor in module._parameters.items():
            if tensor is not None:
                yield _Slot(path + name, module, name, tensor)
        for name, tensor in module._buffers.items():
            if tensor is not None and name not in module._non_persistent:
                yield _Slot(path + name, module, name, tensor)


def _all_modules(root: Module, prefix: str) -> list[tuple[str, Module]]:
    """All modules with the prefix of their keys, a shared one under each of its names."""
    named = root.named_modules(remove_duplicate=False)
    return [(f"{prefix}{path}." if path else prefix, module) for path, module in named]


def state_of(root: Module, prefix: str, keep_vars: bool) -> dict[str, Any]:
    """See ``Module.state_dict``."""
    state: dict[str, Any] = {}
    for slot in _slots(root, prefix):
        state[slot.key] = slot.tensor if keep_vars else slot.tensor.detach()
    for path, module in _all_modules(root, prefix):
        get_extra = getattr(module, "get_extra_state", None)
        if get_extra is not None:
            state[path + EXTRA_STATE] = get_extra()
    return state


def load_state(
    root: Module, state: Mapping[str, Any], strict: bool, assign: bool
) -> IncompatibleKeys:
    """See ``Module.load_state_dict``. All checks come before the first copy."""
    if not isinstance(state, Mapping):
        raise StateDictError("load_state_dict takes a mapping from names to arrays",
                             got=type(state).__name__)
    slots = list(_slots(root))
    extra = {path + EXTRA_STATE: module for path, module in _all_modules(root, "")
             if hasattr(module, "set_extra_state")}
    expected = {slot.key for slot in slots} | set(extra)
    missing = [slot.key for slot in slots if slot.key not in state]
    missing += [key for key in extra if key not in state]
    unexpected = [key for key in state if key not in expected]
    found = [(slot, _array(slot.key, state[slot.key])) for slot in slots if slot.key in state]
    notes = [f"shape of {slot.key}: {tuple(value.shape)}, expected {tuple(slot.tensor.shape)}"
             for slot, value in found if tuple(value.shape) != tuple(slot.tensor.shape)]
    if strict:
        notes += [f"missing key: {key}" for key in missing]
        notes += [f"unexpected key: {key}" for key in unexpected]
    if notes:
        raise StateDictError(
            f"the state dict does not fit {type(root).__name__}", notes=notes,
            help="strict=False ignores missing and unexpected keys")
    with no_grad():
        for slot, value in found:
            if assign:
                _assign(slot, value)
            else:
                slot.tensor.copy_(value)
    for key, module in extra.items():
        if key in state:
            module.set_extra_state(state[key])
    return IncompatibleKeys(missing, unexpected)


def _array(key: str, value: Any) -> Any:
    """``value`` as a Tensor or a NumPy array."""
    if isinstance(value, (Tensor, np.ndarray)):
        return value
    if hasattr(value, "detach"):  # a tensor of torch that requires a gradient
        value = value.detach()
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(value)
    except (TypeError, ValueError, BufferError) as error:
        raise StateDictError(f"the value of {key} is not an array",
                             got=type(value).__name__) from error


def _assign(slot: _Slot, value: Any) -> None:
    tensor = Tensor(value).detach()
    if isinstance(slot.tensor, Parameter):
        tensor = Parameter(tensor, requires_grad=slot.tensor.requires_grad)
    setattr(slot.module, slot.name, tensor)
