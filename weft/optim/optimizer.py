"""Optimizer: parameter groups, state and hooks that all optimisers share, as in torch."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Self, TypedDict

import numpy as np

from weft.eager.cell import watching
from weft.eager.device import device
from weft.eager.emitter import call
from weft.eager.functions import creation
from weft.eager.grad_mode import enable_grad, no_grad
from weft.eager.tensor import Tensor
from weft.nn.modules.arguments import check_keywords
from weft.nn.modules.hooks import RemovableHandle, add_hook
from weft.nn.parameter import clear_grad
from weft.nn.state_dict import StateDictError
from weft.optim.param_group import ParamGroup
from weft.support.errors import InvalidInputError, OptionError
from weft.support.suggestion import described_type, did_you_mean

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
State = dict[str, Any]
Rate = float | Tensor  # an option that may be a tensor of one element


class Flags(TypedDict, total=False):
    """Options of many optimisers: ``maximize`` climbs; the others say how torch's kernels run.

    A step of weft is a program of its own: ``foreach``, ``fused`` and ``capturable`` change
    nothing, and ``differentiable=True`` is refused.
    """

    maximize: bool
    foreach: bool | None
    fused: bool | None
    capturable: bool
    differentiable: bool


_FLAGS: Flags = {"maximize": False, "foreach": None, "fused": None, "capturable": False,
                 "differentiable": False}
# option -> the least and the largest value; betas are checked by themselves
_RANGES = {
    **dict.fromkeys(("lr", "eps", "weight_decay", "momentum", "momentum_decay", "lr_decay",
                     "initial_accumulator_value", "alpha"), (0.0, math.inf)),
    "rho": (0.0, 1.0), "d": (1.0, math.inf), "beta2_decay": (-math.inf, 0.0),
}


class Optimizer:
    """Base class: subclasses say what the state of a parameter is, and how it moves.

    ``param_groups`` are dicts of options and parameters; ``state`` maps each parameter that a step
    has moved to its tensors. Options that are numbers are tensors of a compiled step, so that
    changing them does not compile it again; it is compiled anew for another flag.
    """

    # A compiled step guards the tensors of the state of each parameter that it moves.
    _not_watched: ClassVar[frozenset[str]] = frozenset({"state", "_new_state", "has_stepped"})

    defaults: dict[str, Any]
    # The names in ``Flags`` that the constructor takes.
    flags: ClassVar[tuple[str, ...]] = ()
    has_stepped: bool = False
    # The names of the tensors of a parameter's state, which are as large as the parameter.
    slots: ClassVar[tuple[str, ...]] = ()
    counts_steps: ClassVar[bool] = True
    # State that torch does not have: scalars that state dicts leave out, 0 once a step was made.
    private: ClassVar[tuple[str, ...]] = ()

    def __new__(cls, *_: Any, **named: Any) -> Self:
        check_keywords(cls, frozenset(named))
        return super().__new__(cls)

    def __init__(
        self, params: Params, defaults: dict[str, Any], flags: Flags | None = None
    ) -> None:
        self.defaults = {**defaults, **self._checked({} if flags is None else flags)}
        self.state: defaultdict[Tensor, State] = defaultdict(dict)
        self.param_groups: list[ParamGroup] = []
        self._new_state: dict[int, State] = {}
        self._hooks: dict[str, dict[int, Any]] = {kind: {} for kind in _HOOKS}
        if isinstance(params, Tensor):
            raise InvalidInputError("an optimizer takes a list of parameters", got="a tensor")
        given = list(params)
        if not given:
            raise InvalidInputError("an optimizer got no parameters")
        groups = given if isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)  # type: ignore[arg-type] - one kind, as the first

    def _checked(self, flags: Mapping[str, Any]) -> dict[str, Any]:
        """All flags of this optimiser; ``OptionError`` for those that it does not take."""
        name = type(self).__name__
        for flag, value in flags.items():
            if flag not in self.flags:
                raise OptionError(f"{name} takes no {flag}", got=repr(value),
                                  help=did_you_mean(flag, (*self.flags, *self._arguments())))
            if flag == "differentiable" and value:
                raise OptionError(f"{name}: differentiable=True is not supported",
                                  help="write the update with operators, as a function of tensors")
        if flags.get("foreach") and flags.get("fused"):
            raise OptionError(f"{name}: foreach and fused exclude each other")
        return {flag: flags.get(flag, _FLAGS[flag]) for flag in self.flags}  # type: ignore[literal-required]

    def _arguments(self) -> list[str]:
        code = type(self).__init__.__code__
        return list(code.co_varnames[2:code.co_argcount])

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; the other options are the defaults."""
        given = param_group["params"]
        chosen = [given] if isinstance(given, Tensor) else list(given)
        named = {"param_names": [p[0] for p in chosen]} if _are_named(chosen) else {}
        if self.param_groups and ("param_names" in self.param_groups[0]) != bool(named):
            raise InvalidInputError("some groups name their parameters, others do not")
        chosen = [p[1] if isinstance(p, tuple) else p for p in chosen]
        known = {id(p) for group in self.param_groups for p in group["params"]}
        for parameter in chosen:
            if not isinstance(parameter, Tensor):
                raise InvalidInputError(
                    "an optimizer takes parameters of weft", got=described_type(parameter),
                    help="nn.Linear(...).parameters() of weft.nn; weft.tensor(x) copies values")
            if not parameter.is_leaf:
                raise InvalidInputError("a parameter is a leaf, not a result")
            if id(parameter) in known:
                raise InvalidInputError("a parameter is in two groups")
            known.add(id(parameter))
        group = ParamGroup({**self.defaults, **param_group, "params": chosen, **named})
        self.check_options(group)
        group.make_tensors()
        self.param_groups.append(group)
        self._prepare(group)

    def check_options(self, group: ParamGroup) -> None:
        """Raise ``InvalidInputError`` for options out of range."""
        owner = type(self).__name__
        for name in ("lr", *(n for n in group if n == "betas")):
            for value in _several(group.get(name, 0.0)):
                if isinstance(value, Tensor) and value.numel() != 1:
                    raise InvalidInputError(f"{owner}: {name} is a tensor of several elements",
                                            expected="one element", got=tuple(value.shape))
        for name, (least, largest) in _RANGES.items():
            for value in _several(group.get(name, least if least == 0 else largest)):
                if value is None or isinstance(value, Tensor) or least <= value <= largest:
                    continue
                reason = "is negative" if least == 0 > value else "is out of range"
                raise InvalidInputError(f"{owner}: {name} {reason}", got=value,
                                        expected=f"{least} to {largest}")
        for beta in group.get("betas", ()):
            if not isinstance(beta, Tensor) and not 0 <= beta < 1:
                raise InvalidInputError(f"{owner}: a beta is out of range",
                                        expected="0 <= beta < 1", got=beta)

    # -- state --------------------------------------------------------------------------------

    def slot_names(self, group: ParamGroup, parameter: Tensor) -> tuple[str, ...]:
        """The names of the state tensors of a parameter under the options of ``group``."""
        return self.slots

    def slot_shape(self, name: str, parameter: Tensor) -> tuple[int, ...]:
        """The shape of a state tensor that is no scalar."""
        return tuple(parameter.shape)

    def initial(self, name: str, parameter: Tensor, group: ParamGroup) -> Tensor:
        """The first value of a state tensor: zeros, unless a subclass says else."""
        return creation.zeros(self.slot_shape(name, parameter), dtype=parameter.dtype,
                              device=parameter.device)

    def _prepare(self, group: ParamGroup) -> None:
        """Make the state of new parameters, so that a traced step finds it.

        The parameters share one tensor that counts steps as long as they are moved together.
        """
        count = _number(np.float32(0)) if self.counts_steps else None
        for parameter in group["params"]:
            made: State = {} if count is None else {"step": count}
            for name in self.slot_names(group, parameter):
                made[name] = self.initial(name, parameter.detach(), group)
            self._new_state[id(parameter)] = made

    def _state_of(self, parameter: Tensor, group: ParamGroup) -> State:
        """The state of a parameter, with all that the options of its group ask for now."""
        state = self.state.get(parameter)
        if not state:
            state = self.state[parameter] = self._new_state.pop(id(parameter), None) or {}
        for name in self.slot_names(group, parameter):
            found = state.get(name)
            if found is None or not self._fits(name, found, parameter):
                state[name] = self.initial(name, parameter.detach(), group)
            elif found.ndim and device(found.device) is not device(parameter.device):
                state[name] = found.to(device(parameter.device))
        watch = watching()
        if watch is not None:
            watch.state(self, parameter, state)
        return state

    # -- steps --------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero."""
        for group in self.param_groups:
            for parameter in group["params"]:
                clear_grad(parameter, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move all parameters that have a gradient; ``closure`` computes the loss first."""
        args: tuple[Any, ...] = (self,) if closure is None else (self, closure)
        kwargs: dict[str, Any] = {}
        for hook in tuple(self._hooks["step_pre"].values()):
            args, kwargs = hook(self, args, kwargs) or (args, kwargs)
        self.__dict__["has_stepped"] = True  # of which a compiled step need not know
        loss = self._stepped(*args[1:], **kwargs)
        for hook in tuple(self._hooks["step_post"].values()):
            hook(self, args, kwargs)
        return loss

    def _stepped(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the parameters, and return the loss that ``closure`` computed."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self._step_group(group)
        return loss

    def _step_group(self, group: ParamGroup) -> None:
        moved = [(p, self._state_of(p, group)) for p in group["params"] if p.grad is not None]
        if self.counts_steps:
            self._count([state for _, state in moved])
        shared: dict[Any, Any] = {}
        for parameter, state in moved:
            gradient = parameter.grad
            if gradient is None:
                continue
            if group.get("maximize"):
                gradient = -gradient
            self.update(parameter, gradient.detach(), state, group, shared)

    def _count(self, states: list[State]) -> None:
        """Add 1 to the counts of ``states``; those that share one go on sharing it."""
        moved = {id(state) for state in states}
        counts: dict[int, Tensor] = {id(s["step"]): s["step"] for s in states if "step" in s}
        others = [s for s in (*self.state.values(), *self._new_state.values())
                  if id(s) not in moved and id(s.get("step")) in counts]
        left: dict[int, Tensor] = {}
        for state in others:  # parameters without a gradient this time keep their count
            count = state["step"]
            state["step"] = left.setdefault(id(count), call("copy", count))
        first: Tensor | None = None
        for state in states:
            if "step" not in state:
                first = _number(np.float32(0)) if first is None else first
                counts[id(first)] = state["step"] = first
        for count in counts.values():
            count.add_(1.0)

    def update(
        self, parameter: Tensor, gradient: Tensor, state: State, group: ParamGroup,
        shared: dict[Any, Any],
    ) -> None:
        """Move one parameter in place. ``shared`` keeps scalars that parameters have in common."""
        raise InvalidInputError(f"{type(self).__name__} has no update")

    # -- state dicts --------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """``{"state": {index: tensors}, "param_groups": […]}``, as torch has it."""
        for hook in tuple(self._hooks["state_dict_pre"].values()):
            hook(self)
        order = [p for group in self.param_groups for p in group["params"]]
        index = {id(p): i for i, p in enumerate(order)}
        state = {index[id(p)]: {name: Tensor(v) if isinstance(v, Tensor) else v
                                for name, v in self.state[p].items()
                                if name not in self.private}
                 for p in order if self.state.get(p)}
        groups = [{**{k: v for k, v in group.items() if k != "params"},
                   "params": [index[id(p)] for p in group["params"]]}
                  for group in self.param_groups]
        found = {"state": state, "param_groups": groups}
        for hook in tuple(self._hooks["state_dict_post"].values()):
            found = hook(self, found) or found
        return found

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take over what ``state_dict`` (this one's, or torch's as arrays) gave.

        Raises ``StateDictError`` if the groups or shapes differ, before it changes anything.
        """
        for hook in tuple(self._hooks["load_pre"].values()):
            state_dict = hook(self, dict(state_dict)) or state_dict
        groups = list(state_dict["param_groups"])
        own = [len(group["params"]) for group in self.param_groups]
        given = [len(group["params"]) for group in groups]
        if own != given:
            raise StateDictError(f"the state does not fit {type(self).__name__}",
                                 expected=f"groups of {own} parameters", got=given)
        numbers = [n for group in groups for n in group["params"]]
        order = [p for group in self.param_groups for p in group["params"]]
        by_number = dict(zip(numbers, order, strict=True))
        loaded: dict[Tensor, State] = {}
        counts: dict[float, Tensor] = {}
        for number, entries in state_dict["state"].items():
            parameter = by_number[int(number) if not isinstance(number, int) else number]
            loaded[parameter] = {name: self._loaded(name, value, parameter, counts)
                                 for name, value in entries.items()}
        self._take(loaded)
        for group, options in zip(self.param_groups, groups, strict=True):
            group.update({k: _option(v) for k, v in options.items() if k != "params"})
        for hook in tuple(self._hooks["load_post"].values()):
            hook(self)

    def _take(self, loaded: dict[Tensor, State]) -> None:
        """Replace the state; tensors keep their identity, which a compiled step relies on."""
        with no_grad():
            before = {p: self.state.get(p) or self._new_state.pop(id(p), {}) for p in loaded}
            counted: dict[int, set[int]] = {}  # parameters may share the tensor of their count
            for parameter, entries in loaded.items():
                counted.setdefault(id(before[parameter].get("step")), set()).add(
                    id(entries.get("step")))
            for parameter, entries in loaded.items():
                known = before[parameter]
                for name, value in entries.items():
                    old = known.get(name)
                    is_same = isinstance(old, Tensor) and isinstance(value, Tensor)
                    is_one = name != "step" or len(counted[id(old)]) == 1
                    if is_same and is_one and old.shape == value.shape:
                        entries[name] = old.copy_(value)
                for name in self.private:
                    if name in known:
                        entries[name] = known[name].zero_()
                self.state[parameter] = entries

    def _named_state(self, names: Mapping[int, str]) -> Iterator[tuple[str, Tensor]]:
        """Names for the tensors of the state and of the options, by those of the parameters."""
        for number, group in enumerate(self.param_groups):
            for i, parameter in enumerate(group["params"]):
                state = self.state.get(parameter) or self._new_state.get(id(parameter), {})
                own = names.get(id(parameter), f"{number}.{i}")
                for name, value in state.items():
                    if isinstance(value, Tensor):
                        yield name if name == "step" else f"{name}.{own}", value

    def _fits(self, name: str, tensor: Tensor, parameter: Tensor) -> bool:
        """Whether a state tensor, a scalar or one for each element, has its shape and dtype."""
        same = tuple(tensor.shape) == self.slot_shape(name, parameter)
        return (same and tensor.dtype == parameter.dtype) or tensor.ndim == 0

    def _loaded(
        self, name: str, value: Any, parameter: Tensor, counts: dict[float, Tensor]
    ) -> Any:
        """A state value as a tensor; equal counts of steps become one tensor."""
        if value is None or isinstance(value, bool | str):
            return value
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
        if name == "step":
            number = float(array)
            if number not in counts:
                counts[number] = _number(np.float32(number))
            return counts[number]
        if array.shape not in ((), self.slot_shape(name, parameter)):
            raise StateDictError(f"the shape of {name} does not fit its parameter",
                                 expected=self.slot_shape(name, parameter), got=array.shape)
        if not array.shape:
            return _number(array)
        return Tensor(array.astype(parameter.dtype.numpy)).to(parameter.device)

    # -- hooks --------------------------------------------------------------------------------

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(optimizer, args, kwargs)`` before each step; it may return other ones."""
        return add_hook(self._hooks["step_pre"], hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(optimizer, args, kwargs)`` after each step."""
        return add_hook(self._hooks["step_post"], hook)

    def register_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer)`` before ``state_dict``."""
        return _add(self._hooks["state_dict_pre"], hook, prepend)

    def register_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer, state_dict)`` after ``state_dict``; it may return another one."""
        return _add(self._hooks["state_dict_post"], hook, prepend)

    def register_load_state_dict_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer, state_dict)`` before it is loaded; it may return another one."""
        return _add(self._hooks["load_pre"], hook, prepend)

    def register_load_state_dict_post_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(optimizer)`` after ``load_state_dict``."""
        return _add(self._hooks["load_post"], hook, prepend)

    def __repr__(self) -> str:
        lines = []
        for number, group in enumerate(self.param_groups):
            options = "\n".join(f"    {k}: {v}" for k, v in sorted(group.items())
                                if k != "params")
            lines.append(f"Parameter Group {number}\n{options}")
        return f"{type(self).__name__} (\n" + "\n".join(lines) + "\n)"


_HOOKS = ("step_pre", "step_post", "state_dict_pre", "state_dict_post", "load_pre", "load_post")


def _add(hooks: dict[int, Any], hook: Callable[..., Any], prepend: bool) -> RemovableHandle:
    """Register a hook after the others, or before them."""
    handle = add_hook(hooks, hook)
    if prepend:
        others = [key for key in hooks if key != handle.id]
        for key in others:
            hooks[key] = hooks.pop(key)
    return handle


def _are_named(parameters: list[Any]) -> bool:
    """Whether parameters are pairs with names: all, or none."""
    count = sum(isinstance(p, tuple) for p in parameters)
    if count not in (0, len(parameters)):
        raise InvalidInputError("some parameters have names, others have none",
                                got=f"{count} of {len(parameters)}")
    return count > 0


def _number(value: Any) -> Tensor:
    """A tensor without axes on the CPU, which goes with parameters of every device."""
    return creation.tensor(value, device="cpu")


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _option(value: Any) -> Any:
    """An option from a state dict; one that is a tensor, of any library, as a tensor of weft."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if hasattr(value, "detach"):
        return Tensor(np.array(value.detach().cpu()))
    return copy.deepcopy(value)
