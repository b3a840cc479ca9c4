"""Layers that call one function of ``nn.functional``: a class statement is a row of a table."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from inspect import Parameter, Signature
from typing import Any, ClassVar

from weft.eager.tensor import Tensor
from weft.nn import functional
from weft.nn.modules.module import Module


def signature_of(text: str) -> Signature:
    """The parameters that ``text`` names: ``"dim beta=1.0 * full=False"``; ``*`` as in Python."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for word in text.split():
        if word == "*":
            kind = Parameter.KEYWORD_ONLY
            continue
        name, has_default, default = word.partition("=")
        value = ast.literal_eval(default) if has_default else Parameter.empty
        parameters.append(Parameter(name, kind, default=value))
    return Signature(parameters)


class FunctionLayer(Module):
    """Calls ``F.<function>`` with its inputs and the arguments of its constructor.

    ``takes`` is the text of the constructor's signature (see ``signature_of``). Arguments become
    attributes, those of ``buffers`` buffers; the call passes those that are not ``kept``, and the
    mode of the module if ``by_mode``. ``shown`` names what ``repr`` shows; by default all.
    A subclass without these keywords inherits them and is free in its own constructor.
    """

    function: ClassVar[str]
    signature: ClassVar[Signature]
    buffers_of: ClassVar[tuple[str, ...]] = ()
    kept: ClassVar[tuple[str, ...]] = ()
    by_mode: ClassVar[bool] = False
    shown: ClassVar[str | None] = None

    def __init_subclass__(
        cls, function: str | None = None, takes: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if function is not None:
            cls.function = function
        if takes is not None:
            cls.signature = signature_of(takes)
        if (function or takes) and "__init__" not in cls.__dict__:
            _add_constructor(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        for name, value in self._attributes(bound.arguments).items():
            if isinstance(value, Tensor) or name in self.buffers_of:
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def _attributes(self, given: dict[str, Any]) -> Mapping[str, Any]:
        """What the layer keeps of the arguments of its constructor."""
        return given

    def forward(self, *inputs: Any, **named: Any) -> Any:
        options = {name: getattr(self, name) for name in self.signature.parameters
                   if name not in self.kept}
        if self.by_mode:
            options["training"] = self.training
        return getattr(functional, self.function)(*inputs, **options, **named)

    def extra_repr(self) -> str:
        names = self.signature.parameters if self.shown is None else self.shown.split()
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names
                         if name != "inplace" or self.inplace or self.by_mode)


def _add_constructor(cls: type[FunctionLayer]) -> None:
    """Give ``cls`` an ``__init__`` whose signature ``help`` and editors can show."""
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it becomes one
        parent(self, *args, **kwargs)

    parent: Any = cls.__init__  # an inherited one
    own = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    __init__.__signature__ = Signature(  # type: ignore[attr-defined] - read by inspect
        [own, *cls.signature.parameters.values()])
    cls.__init__ = __init__  # type: ignore[method-assign]
