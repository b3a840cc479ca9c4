"""``weft.custom_vjp`` and ``weft.custom_jvp``: a user's rules for ``@weft.function``s."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Expr, Function, FuncType, TupleType, Type, Var, infer_type, substitute
from weft.ir.python.from_python import PythonFunction, with_prelude
from weft.support.errors import OptionError
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.custom_rules import JVP, VJP


def custom_vjp(function: PythonFunction | Callable[..., Any]) -> CustomFunction:
    """A ``@weft.function`` whose gradient the program gives (JAX's ``custom_vjp``)::

        @weft.custom_vjp
        @weft.function
        def clamped(x: Tensor[(4,), "float32"]):
            return op.clip(x, a_min=-1, a_max=1)

        clamped.defvjp(lambda_forward, lambda_backward)

    Call ``defvjp`` before the function is used. Forward mode through it is an error; a
    ``custom_jvp`` serves both modes.
    """
    return CustomFunction(_as_function(function).python, VJP)


def custom_jvp(function: PythonFunction | Callable[..., Any]) -> CustomFunction:
    """A ``@weft.function`` whose tangent the program gives (JAX's ``custom_jvp``).

    Call ``defjvp`` before the function is used. Reverse mode transposes the rule, which must be
    linear in the tangents.
    """
    return CustomFunction(_as_function(function).python, JVP)


class CustomFunction(PythonFunction):
    """A ``@weft.function`` with rules of differentiation, which ``defvjp`` or ``defjvp`` set."""

    def __init__(self, python: Callable[..., Any], kind: str) -> None:
        super().__init__(python)
        self._kind = kind
        self._rules: tuple[PythonFunction, ...] = ()

    def defvjp(self, *rules: Any) -> None:
        """``defvjp(forward, backward)``, as in JAX: ``forward (x, ..) -> (y, saved)`` and
        ``backward (saved, dy) -> (dx, ..)``, one gradient per floating-point parameter.

        ``defvjp(rule)`` takes ``rule (x, .., dy) -> (dx, ..)``. Parameters without annotation get
        the types that follow. Raises ``OptionError`` for anything but one or two functions.
        """
        if self._kind != VJP or len(rules) not in (1, 2):
            raise OptionError("defvjp takes forward and backward, or one rule, of a custom_vjp",
                              got=f"{len(rules)} rules of a {self._kind}")
        self._rules = tuple(map(_as_function, rules))

    def defjvp(self, rule: Any) -> Any:
        """``rule (x, .., dx, ..) -> (y, dy)``, with a tangent per floating-point parameter.

        Works as a decorator. Raises ``OptionError`` for a ``custom_vjp``.
        """
        if self._kind != JVP:
            raise OptionError("defjvp is for custom_jvp", got=self._kind)
        self._rules = (_as_function(rule),)
        return rule

    @property
    def function(self) -> Function:
        """The function with the names of its rules; raises ``OptionError`` without rules."""
        if not self._rules:
            word = "defvjp" if self._kind == VJP else "defjvp"
            raise OptionError(f"{self._kind} {self.__name__} has no rules",
                              help=f"call {self.__name__}.{word}(...) first")
        names = tuple(rule.__name__ for rule in self._rules)
        plain = super().function
        return plain.replace(attrs={**plain.attrs,
                                    self._kind: names[0] if len(names) == 1 else names})

    def callees(self) -> list[PythonFunction]:
        """The functions that this one calls, and its rules, with annotated parameters."""
        called = super().callees()
        typed = [_Annotated(rule, types) for rule, types in self._signatures(called)]
        return [*called, *typed]

    def _signatures(self, called: list[PythonFunction]
                    ) -> list[tuple[PythonFunction, tuple[Type, ...]]]:
        """Each rule with the types of its parameters."""
        params, y = _typed(super().function, called)
        floats = tuple(p for p in params if is_differentiable(p))
        if self._kind == JVP:
            return [(self._rules[0], (*params, *floats))]
        if len(self._rules) == 1:
            return [(self._rules[0], (*params, y))]
        forward, backward = self._rules
        _, pair = _typed(_annotated(forward.function, params), PythonFunction.callees(forward))
        fields = pair.fields if isinstance(pair, TupleType) else ()
        saved = fields[1] if len(fields) == 2 else y
        return [(forward, params), (backward, (saved, y))]


class _Annotated(PythonFunction):
    """A rule, whose parameters without annotation get the types that its function gives them."""

    def __init__(self, rule: PythonFunction, types: tuple[Type, ...]) -> None:
        super().__init__(rule.python)
        self._rule, self._types = rule, types

    @property
    def function(self) -> Function:
        return _annotated(self._rule.function, self._types)

    def callees(self) -> list[PythonFunction]:
        return self._rule.callees()


def _as_function(rule: Any) -> PythonFunction:
    if isinstance(rule, PythonFunction):
        return rule
    if callable(rule):
        return PythonFunction(rule)
    raise OptionError("a rule is a function", got=type(rule).__name__, expected="@weft.function")


def _annotated(fn: Function, types: tuple[Type, ...]) -> Function:
    """``fn`` with ``types`` for parameters without annotation, if it has as many."""
    if len(types) != len(fn.params) or all(p.annotation is not None for p in fn.params):
        return fn
    new = {p: p if p.annotation is not None else Var(p.name, t, span=p.span)
           for p, t in zip(fn.params, types, strict=True)}
    changed: dict[Var, Expr] = {p: v for p, v in new.items() if p is not v}
    return fn.replace(params=tuple(new.values()), body=substitute(fn.body, changed))


def _typed(fn: Function, callees: list[PythonFunction]) -> tuple[tuple[Type, ...], Type]:
    """The types of the parameters and of the result."""
    functions: dict[str, Function] = {}
    pending = list(callees)
    while pending:
        current = pending.pop()
        if current.__name__ not in functions:
            functions[current.__name__] = current.function
            # The rules of a function say nothing about its type.
            pending += PythonFunction.callees(current)
    main = "main" if "main" not in functions else "main_"
    type_ = infer_type(with_prelude({main: fn, **functions}))[main].checked_type
    assert isinstance(type_, FuncType)
    return type_.arg_types, type_.ret_type
