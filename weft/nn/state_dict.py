"""state_dict and load_state_dict: the values of a module by torch's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from weft.eager.grad_mode import no_grad
from weft.eager.tensor import Tensor
from weft.nn.parameter import Parameter, Uninitialized, is_lazy
from weft.support.errors import WeftError

EXTRA_STATE = "_extra_state"


class Stateful(Protocol):
    """What a state dict needs of a module."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent: set[str]
    _state_hooks: StateHooks


class StateHooks:
    """The hooks of a module's state: before and after saving, before and after loading."""

    def __init__(self) -> None:
        self.before_save: dict[int, Callable[..., Any]] = {}
        self.after_save: dict[int, Callable[..., Any]] = {}
        self.before_load: dict[int, Callable[..., Any]] = {}
        self.after_load: dict[int, Callable[..., Any]] = {}


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
    module: Stateful
    name: str
    tensor: Tensor


def _visits(root: Stateful, prefix: str = "") -> Iterator[tuple[str, Any, bool]]:
    """Each module with the prefix of its keys, before (False) and after (True) those below it."""
    stack: list[tuple[str, Any, bool]] = [(prefix, root, False)]
    while stack:
        path, module, is_done = stack.pop()
        yield path, module, is_done
        if not is_done:
            stack.append((path, module, True))
            stack.extend((f"{path}{name}.", child, False)
                         for name, child in reversed(module._modules.items())
                         if child is not None)


def _slots(path: str, module: Stateful) -> Iterator[_Slot]:
    """The parameters and persistent buffers of one module."""
    for name, tensor in (*module._parameters.items(), *module._buffers.items()):
        if tensor is not None and name not in module._non_persistent:
            yield _Slot(path + name, module, name, tensor)


def state_of(root: Stateful, state: Any, prefix: str, keep_vars: bool) -> Any:
    """See ``Module.state_dict``."""
    for path, module, is_done in _visits(root, prefix):
        hooks = module._state_hooks
        if is_done:
            for hook in tuple(hooks.after_save.values()):
                if hook(module, state, path, {}) is not None:
                    raise StateDictError("a hook after state_dict returns None",
                                         help="change the state dict in place")
            continue
        for hook in tuple(hooks.before_save.values()):
            hook(module, path, keep_vars)
        for slot in _slots(path, module):
            is_kept = keep_vars or is_lazy(slot.tensor)
            state[slot.key] = slot.tensor if is_kept else Tensor(slot.tensor)
        get_extra = getattr(module, "get_extra_state", None)
        if get_extra is not None:
            state[path + EXTRA_STATE] = get_extra()
    return state


class _Loading:
    """One ``load_state_dict``: what was found, what is missing, what is wrong."""

    def __init__(self, root: Stateful, state: Mapping[str, Any], strict: bool) -> None:
        self.root, self.state, self.strict = root, dict(state), strict
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.notes: list[str] = []
        self.found: list[tuple[_Slot, Any]] = []
        self.extra: list[tuple[str, Any]] = []

    def look(self) -> None:
        """Run the hooks before loading, and compare the keys and shapes."""
        expected: set[str] = set()
        for path, module, is_done in _visits(self.root):
            if is_done:
                continue
            for hook in tuple(module._state_hooks.before_load.values()):
                hook(module, self.state, path, {}, self.strict, self.missing, self.unexpected,
                     self.notes)
            for slot in _slots(path, module):
                expected.add(slot.key)
                self._look_at(slot)
            if hasattr(module, "set_extra_state"):
                key = path + EXTRA_STATE
                expected.add(key)
                self.extra.append((key, module))
        self.missing += [key for key, _ in self.extra if key not in self.state]
        self.unexpected += [key for key in self.state if key not in expected]

    def _look_at(self, slot: _Slot) -> None:
        if slot.key not in self.state:
            self.missing.append(slot.key)
            return
        given = self.state[slot.key]
        if is_lazy(given):
            return
        value = _array(slot.key, given)
        if not is_lazy(slot.tensor) and tuple(slot.tensor.shape) != tuple(value.shape):
            self.notes.append(f"shape of {slot.key}: {tuple(value.shape)}, "
                              f"expected {tuple(slot.tensor.shape)}")
        self.found.append((slot, value))

    def check(self, by_key: bool) -> None:
        """Raise ``StateDictError`` for what is wrong, missing and unexpected keys ``by_key``."""
        notes = list(self.notes)
        if by_key:
            notes += [f"missing key: {key}" for key in self.missing]
            notes += [f"unexpected key: {key}" for key in self.unexpected]
        if notes:
            raise StateDictError(
                f"the state dict does not fit {type(self.root).__name__}", notes=notes,
                help="strict=False ignores missing and unexpected keys")

    def copy(self, assign: bool) -> None:
        """Give the values to the module."""
        with no_grad():
            for slot, value in self.found:
                if isinstance(slot.tensor, Uninitialized):
                    slot.tensor.materialize(tuple(value.shape))
                if assign:
                    _assign(slot, value)
                else:
                    slot.tensor.copy_(value)
        for key, module in self.extra:
            if key in self.state:
                module.set_extra_state(self.state[key])


def load_state(
    root: Stateful, state: Mapping[str, Any], strict: bool, assign: bool
) -> IncompatibleKeys:
    """See ``Module.load_state_dict``. All checks come before the first copy.

    Only hooks after loading may still change which keys are missing: with them, keys are checked
    at the end.
    """
    if not isinstance(state, Mapping):
        raise StateDictError("load_state_dict takes a mapping from names to arrays",
                             got=type(state).__name__)
    loading = _Loading(root, state, strict)
    loading.look()
    after = [(module, hook) for _, module, is_done in _visits(root) if is_done
             for hook in tuple(module._state_hooks.after_load.values())]
    loading.check(by_key=strict and not after)
    loading.copy(assign)
    keys = IncompatibleKeys(loading.missing, loading.unexpected)
    for module, hook in after:
        hook(module, keys)
    loading.check(by_key=strict)
    return keys


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
