"""Module: a tree of layers, with parameters, buffers, modes and hooks, as torch.nn.Module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, TypeVar

from weft.eager.cell import watching
from weft.eager.emitter import call
from weft.eager.tensor import Tensor
from weft.nn.modules.arguments import check_keywords
from weft.nn.modules.hooks import (  # noqa: F401 - torch has them here
    EVERY,
    AfterForward,
    RemovableHandle,
    add_hook,
    before_forward,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from weft.nn.modules.hooks_backward import watched_call
from weft.nn.parameter import Buffer, Parameter, clear_grad
from weft.nn.state_dict import IncompatibleKeys, StateHooks, load_state, state_of
from weft.support.errors import WeftError
from weft.support.markup import shown_as_text
from weft.support.suggestion import described_type

M = TypeVar("M", bound="Module")


class ModuleError(WeftError):
    """A module that is built or used wrongly: a bad name, a missing ``super().__init__()``."""

    code = "E0512"


def _no_forward(self: Module, *_args: Any, **_kwargs: Any) -> Any:
    raise ModuleError(f"{type(self).__name__} has no method forward",
                      help="define forward(self, ...) in the class")


class Module:
    """Base class of all layers. Assign parameters, buffers and layers as attributes.

    Subclasses call ``super().__init__()`` first and define ``forward``; calling the module runs
    its hooks and ``forward``.

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 2)

            def forward(self, x):
                return self.layer(x).relu()
    """

    training: bool
    # Attributes that a compiled function does not guard: none, it sees all that it reads.
    _not_watched: ClassVar[frozenset[str]] = frozenset()

    def __new__(cls, *_args: Any, **kwargs: Any) -> Any:
        if kwargs:
            check_keywords(cls, frozenset(kwargs))
        return object.__new__(cls)

    def __init__(self) -> None:
        tables = ("_parameters", "_buffers", "_modules", "_forward_pre_hooks", "_forward_hooks",
                  "_backward_hooks", "_backward_pre_hooks")
        for table in tables:
            object.__setattr__(self, table, {})
        object.__setattr__(self, "_non_persistent", set())
        object.__setattr__(self, "_state_hooks", StateHooks())
        object.__setattr__(self, "training", True)

    # Subclasses give forward parameters of their own.
    forward: Callable[..., Any] = _no_forward

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` between its hooks."""
        try:
            for hook in (*EVERY.before.values(), *self._forward_pre_hooks.values()):
                args, kwargs = hook(self, args, kwargs)
            if self._backward_hooks or self._backward_pre_hooks or EVERY.has_backward:
                return watched_call(self, args, kwargs)
            result = self.forward(*args, **kwargs)
            if self._forward_hooks or EVERY.after:
                result = self._run_forward_hooks(args, kwargs, result)
        except Exception:
            for hook in (*EVERY.after.values(), *self._forward_hooks.values()):
                if hook.always_call:
                    hook(self, args, kwargs, None)
            raise
        return result

    def _run_forward_hooks(self, args: Any, kwargs: Any, result: Any) -> Any:
        for hook in (*EVERY.after.values(), *self._forward_hooks.values()):
            changed = hook(self, args, kwargs, result)
            result = result if changed is None else changed
        return result

    # -- attributes ---------------------------------------------------------------------------

    def __setattr__(self, name: str, value: Any) -> None:
        tables = self.__dict__
        if "_parameters" not in tables:
            if isinstance(value, (Parameter, Buffer, Module)):
                raise ModuleError(f"{type(self).__name__}.{name} is assigned too early",
                                  help="call super().__init__() first")
            object.__setattr__(self, name, value)
        elif isinstance(value, Parameter):
            self._forget(name, self._parameters)
            self._parameters[name] = value
        elif isinstance(value, Module):
            self._forget(name, self._modules)
            self._modules[name] = value
        elif isinstance(value, Buffer):
            self._forget(name, self._buffers)
            self._buffers[name] = value
            (set.discard if value.persistent else set.add)(self._non_persistent, name)
        elif name in self._parameters:
            self._replace(self._parameters, name, value, "a Parameter or None")
        elif name in self._modules:
            self._replace(self._modules, name, value, "a Module or None")
        elif name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                self._replace(self._buffers, name, value, "a Tensor or None")
            self._buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def _replace(self, table: dict[str, Any], name: str, value: Any, expected: str) -> None:
        if value is not None:
            raise ModuleError(f"cannot assign {type(self).__name__}.{name}",
                              expected=expected, got=described_type(value))
        table[name] = None

    def _forget(self, name: str, table: dict[str, Any]) -> None:
        """Drop the attribute ``name``, unless it is in ``table``, where it keeps its position."""
        self.__dict__.pop(name, None)
        for other in (self._parameters, self._buffers, self._modules):
            if other is not table:
                other.pop(name, None)
        self._non_persistent.discard(name)

    def __getattr__(self, name: str) -> Any:
        for table in ("_parameters", "_buffers", "_modules"):
            entries = self.__dict__.get(table)
            if entries is not None and name in entries:
                watch = watching()
                if watch is not None:
                    watch.item(self, entries, name)
                return entries[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self, name: str) -> None:
        for table in (self._parameters, self._buffers, self._modules):
            if name in table:
                del table[name]
                self._non_persistent.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        names = {*object.__dir__(self), *self._parameters, *self._buffers, *self._modules}
        return sorted(names)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def _check_name(self, name: str, what: str) -> None:
        if not name or "." in name:
            raise ModuleError(f"invalid name of a {what}", expected="a name without a dot",
                              got=repr(name))
        taken = name not in (*self._parameters, *self._buffers, *self._modules)
        if hasattr(self, name) and taken:
            raise ModuleError(f"{type(self).__name__} has an attribute {name!r} already")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter; ``None`` keeps the name for a parameter that is left out."""
        self._check_name(name, "parameter")
        if param is not None and not isinstance(param, Parameter):
            raise ModuleError(f"{name} is not a parameter", expected="nn.Parameter or None",
                              got=type(param).__name__)
        self._forget(name, self._parameters)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter; ``state_dict`` has it if ``persistent``."""
        self._check_name(name, "buffer")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ModuleError(f"{name} is not a tensor", expected="weft.Tensor or None",
                              got=type(tensor).__name__)
        self._forget(name, self._buffers)
        self._buffers[name] = tensor
        if not persistent:
            self._non_persistent.add(name)

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child; the same as ``add_module``."""
        self._check_name(name, "module")
        if module is not None and not isinstance(module, Module):
            raise ModuleError(f"{name} is not a module", expected="nn.Module or None",
                              got=type(module).__name__)
        self._forget(name, self._modules)
        self._modules[name] = module

    add_module = register_module

    # -- the tree -----------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The direct children, each once."""
        seen: set[int] = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        return (module for _, module in self.named_children())

    def named_modules(
        self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """The module and all below it in pre-order, with dotted names."""
        seen = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if remove_duplicate and id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            below = [(f"{path}.{name}" if path else name, child)
                     for name, child in module._modules.items() if child is not None]
            stack.extend(reversed(below))

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        return (m for _, m in self.named_modules(remove_duplicate=remove_duplicate))

    def _named_tensors(
        self, table: str, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        modules = (self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate)
                   if recurse else [(prefix, self)])
        for path, module in modules:
            for name, tensor in getattr(module, table).items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted names; a shared parameter comes once."""
        return self._named_tensors("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        return (p for _, p in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their dotted names, those that are not persistent included."""
        return self._named_tensors("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        return (b for _, b in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; ``""`` is this one."""
        module: Module = self
        for name in target.split(".") if target else ():
            child = module._modules.get(name)
            if child is None:
                raise ModuleError(f"{type(self).__name__} has no module {target!r}",
                                  help="named_modules() lists the names")
            module = child
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Replace the module of a dotted name; a new name is an error if ``strict``."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not name or (strict and name not in owner._modules):
            raise ModuleError(f"{type(self).__name__} has no module {target!r}")
        owner.register_module(name, module)

    def _get_tensor(self, target: str, table: str) -> Any:
        path, _, name = target.rpartition(".")
        found = self.get_submodule(path).__dict__[table].get(name)
        if found is None:
            raise ModuleError(f"{type(self).__name__} has no {table[1:-1]} {target!r}")
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter of a dotted name."""
        return self._get_tensor(target, "_parameters")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name."""
        return self._get_tensor(target, "_buffers")

    def apply(self: M, fn: Callable[[Module], Any]) -> M:
        """Call ``fn`` with each module, children before their parents."""
        for module in _post_order(self):
            fn(module)
        return self

    # -- modes, dtypes, gradients -------------------------------------------------------------

    def train(self: M, mode: bool = True) -> M:
        """Set the mode of this module and all below it: dropout, batch statistics."""
        if not isinstance(mode, bool):
            raise ModuleError("train() takes a bool", got=repr(mode))
        for module in self.modules():
            object.__setattr__(module, "training", mode)
        return self

    def eval(self: M) -> M:
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Whether ``backward`` makes gradients of the parameters."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or set them to zero."""
        for parameter in self.parameters():
            clear_grad(parameter, set_to_none)

    def to(self: M, *args: Any, **kwargs: Any) -> M:
        """Move or convert parameters and buffers, as ``Tensor.to`` does; dtypes of floats alone."""
        return self._apply(lambda t: _converted(t, args, kwargs))

    def type(self: M, dst_type: Any) -> M:
        """Convert all parameters and buffers, integers too."""
        return self._apply(lambda t: t.to(dst_type))

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Parameters and buffers of new, undefined values on ``device``."""
        return self._apply(lambda t: call("zeros_like", t.to(device=device)), recurse)

    def float(self: M) -> M:
        return self.to("float32")

    def double(self: M) -> M:
        return self.to("float64")

    def half(self: M) -> M:
        return self.to("float16")

    def bfloat16(self: M) -> M:
        return self.to("bfloat16")

    def cpu(self: M) -> M:
        return self.to("cpu")

    def cuda(self: M, device: int | str | None = None) -> M:
        return self.to("cuda" if device is None else device if isinstance(device, str)
                       else f"cuda:{device}")

    def _apply(self: M, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> M:
        """Give each parameter and buffer, and their gradients, the value ``fn`` of their own."""
        for tensor in [*self.parameters(recurse), *self.buffers(recurse)]:
            tensor.data = fn(tensor.detach())
            if tensor.grad is not None:
                tensor.grad = fn(tensor.grad.detach())
        return self

    # -- state --------------------------------------------------------------------------------

    def state_dict(
        self, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Parameters and persistent buffers by torch's names.

        The tensors hold the present values, which training does not change, and no gradients;
        with ``keep_vars`` they are the parameters and buffers themselves.
        """
        return state_of(self, {} if destination is None else destination, prefix, keep_vars)

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy values (tensors, NumPy arrays, or what supports DLPack) into this module.

        Raises ``StateDictError`` that lists all missing and unexpected keys (if ``strict``) and
        all shapes that differ, before it copies anything. ``assign`` makes new parameters of
        the values, which keeps their dtype.
        """
        return load_state(self, state_dict, strict, assign)

    # -- hooks --------------------------------------------------------------------------------

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, args)`` before ``forward``; a result replaces the arguments."""
        return add_hook(self._forward_pre_hooks, before_forward(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Run ``hook(module, args, output)`` after ``forward``; a result replaces the output.

        With ``always_call`` the hook also runs, with ``None``, when ``forward`` raises.
        """
        return add_hook(self._forward_hooks, AfterForward(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, grad_output)`` in ``backward``; a result replaces the gradients."""
        return add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(
        self, hook: Callable[..., Any], prepend: bool = False
    ) -> RemovableHandle:
        """Run ``hook(module, grad_input, grad_output)``; a result replaces ``grad_input``."""
        return add_hook(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, prefix, keep_vars)`` before ``state_dict`` reads the module."""
        return add_hook(self._state_hooks.before_save, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, state_dict, prefix, local_metadata)`` after ``state_dict``.

        ``local_metadata`` is empty. The hook changes the dict in place, and returns ``None``.
        """
        return add_hook(self._state_hooks.after_save, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)`` before loading; it may change the dict and the lists.
        """
        return add_hook(self._state_hooks.before_load, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Run ``hook(module, incompatible_keys)`` after loading; it may change the lists."""
        return add_hook(self._state_hooks.after_load, hook)

    # -- text ---------------------------------------------------------------------------------
    _repr_html_ = shown_as_text
    def extra_repr(self) -> str:
        """What ``repr`` shows of this module beside its children."""
        return ""

    def __repr__(self) -> str:
        return describe(self)


def _converted(tensor: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """``tensor.to(...)``, where a dtype changes floats alone: indices keep their dtype."""
    found = tensor.to(*args, **kwargs)
    return found if tensor.is_floating_point() else tensor.to(device=found.device)


def _post_order(root: Module) -> list[Module]:
    """Each module once, after those below it."""
    order: list[Module] = []
    seen = {id(root)}
    stack = [(root, root.children())]
    while stack:
        module, below = stack[-1]
        child = next(below, None)
        if child is None:
            order.append(module)
            stack.pop()
        elif id(child) not in seen:
            seen.add(id(child))
            stack.append((child, child.children()))
    return order


def describe(root: Module) -> str:
    """``repr`` in torch's form: one line per module, children indented."""
    texts: dict[int, str] = {}
    for module in _post_order(root):
        extra = module.extra_repr()
        lines = [f"({name}): " + (texts[id(child)] if child is not None else "None")
                 for name, child in module._modules.items()]
        title = type(module).__name__
        if not lines and "\n" not in extra:
            texts[id(module)] = f"{title}({extra})"
            continue
        body = "\n".join(([extra] if extra else []) + lines)
        indented = "\n".join("  " + line for line in body.split("\n"))
        texts[id(module)] = f"{title}(\n{indented}\n)"
    return texts[id(root)]
