"""Rules of differentiation that a program gives for its own functions.

A function may have attributes that name other functions of its module:

* ``custom_jvp="rule"``: ``rule (x, .., dx, ..) -> (y, dy)`` is its rule in forward mode, and by
  transposition in reverse mode (JAX's ``custom_jvp``). A tangent follows for each parameter that
  holds floating point, in order.
* ``custom_vjp="rule"``: ``rule (x, .., dy) -> (dx, ..)`` gives the gradients of those parameters.
* ``custom_vjp=["forward", "backward"]``: ``forward (x, ..) -> (y, saved)`` replaces the function
  where it is differentiated, and ``backward (saved, dy) -> (dx, ..)`` gives the gradients (JAX's
  ``custom_vjp``).

For one parameter the gradient may be returned outside of a tuple. Such a function stays a call
until it is differentiated; its body is never differentiated, unless ``forward_mode="body"`` says
that forward mode does so.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Call, Expr, Function, FuncType, GlobalVar, IRModule, Tuple, TupleType, Type, Var
from weft.op.gradients import field_of
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.reverse.adjoint import is_differentiable

JVP, VJP = "custom_jvp", "custom_vjp"
FORWARD_BY_BODY = {"forward_mode": "body"}


def has_custom_rule(fn: Function) -> bool:
    """Whether a rule of the program replaces the derivative of the body of ``fn``."""
    return JVP in fn.attrs or VJP in fn.attrs


def has_forward_rule(fn: Function) -> bool:
    """Whether forward mode needs a rule of the program for ``fn``."""
    by_body = fn.attrs.get("forward_mode") == FORWARD_BY_BODY["forward_mode"]
    return has_custom_rule(fn) and not by_body


def with_plain_entry(mod: IRModule, entry: str) -> IRModule:
    """``mod``; an ``entry`` that has a rule becomes a call of the function with the rule."""
    fn = mod[entry]
    if not has_custom_rule(fn):
        return mod
    name = f"{entry}_custom"
    while name in mod:
        name += "_"
    params = tuple(Var(p.name, p.annotation or p.checked_type, span=p.span) for p in fn.params)
    call = Call(GlobalVar(name, span=fn.span), params, span=fn.span)
    return mod.with_functions({entry: Function(params, call, span=fn.span), name: fn})


def rule_names(fn: Function) -> tuple[str, ...]:
    """The functions that the attributes of ``fn`` name."""
    names: list[str] = []
    for attribute in (JVP, VJP):
        given = fn.attrs.get(attribute, ())
        names += [given] if isinstance(given, str) else list(given)
    return tuple(names)


@dataclass(frozen=True, slots=True)
class CustomVjp:
    """A checked pair of functions; ``single`` if the gradient is not in a tuple."""

    forward: GlobalVar
    backward: GlobalVar
    single: bool

    def called(self, call: Call, args: tuple[Expr, ...]) -> Expr:
        """``(y, saved)`` for a call of the function."""
        type_ = _function_type(self.forward).ret_type
        return Call(self.forward, args, span=call.span, checked_type=type_)

    def gradients(self, saved: Expr, dy: Expr) -> list[Expr]:
        """The gradients of the parameters that hold floating point."""
        type_ = _function_type(self.backward).ret_type
        result = Call(self.backward, (saved, dy), span=dy.span, checked_type=type_)
        if self.single:
            return [result]
        assert isinstance(type_, TupleType)
        return [field_of(result, i) for i in range(len(type_.fields))]


def custom_pair(mod: IRModule, name: str) -> CustomVjp | None:
    """The functions of ``custom_vjp=["forward", "backward"]``; ``PassError`` for wrong types."""
    fn = mod[name]
    given = fn.attrs.get(VJP)
    if given is None or isinstance(given, str):
        return None
    if len(given) != 2:
        raise PassError(f"custom_vjp of @{name} needs two functions", where=fn.span,
                        got=", ".join(f"@{n}" for n in given), expected="forward and backward")
    forward, backward = (_rule(mod, name, rule) for rule in given)
    y = type_of(fn.body)
    params = _types(fn.params)
    made = _function_type(forward)
    if made.arg_types != params or not isinstance(made.ret_type, TupleType) or len(
        made.ret_type.fields
    ) != 2 or made.ret_type.fields[0] != y:
        raise _wrong(mod, name, forward, f"fn({_listed(params)}) -> ({y}, saved values)")
    saved = made.ret_type.fields[1]
    wanted = _wanted(fn)
    found = _function_type(backward)
    single = len(wanted) == 1 and found.ret_type == wanted[0]
    if found.arg_types != (saved, y) or not (single or found.ret_type == TupleType(wanted)):
        raise _wrong(mod, name, backward, str(FuncType((saved, y), TupleType(wanted))))
    return CustomVjp(forward, backward, single)


def custom_product(mod: IRModule, name: str) -> Function | None:
    """``(x, .., dy) -> (dx, ..)`` by the ``custom_vjp`` of a function; ``None`` without one."""
    fn = mod[name]
    if VJP not in fn.attrs:
        return None
    params = tuple(Var(p.name, type_of(p), span=p.span) for p in fn.params)
    dy = Var("dy", type_of(fn.body), span=fn.span)
    pair = custom_pair(mod, name)
    if pair is not None:
        at = Call(pair.forward, params, span=fn.span)
        both = pair.called(at, params)
        grads = pair.gradients(field_of(both, 1), dy)
    else:
        grads = _by_product(mod, name, params, dy)
    return Function((*params, dy), Tuple(tuple(grads), span=fn.span), span=fn.span)


def _by_product(mod: IRModule, name: str, params: tuple[Var, ...], dy: Var) -> list[Expr]:
    fn = mod[name]
    rule = _rule(mod, name, fn.attrs[VJP])
    wanted = _wanted(fn)
    args = (*params, dy)
    found = _function_type(rule)
    single = len(wanted) == 1 and found.ret_type == wanted[0]
    if found.arg_types != _types(args) or not (single or found.ret_type == TupleType(wanted)):
        raise _wrong(mod, name, rule, str(FuncType(_types(args), TupleType(wanted))))
    call = Call(rule, args, span=fn.span, checked_type=found.ret_type)
    return [call] if single else [field_of(call, i) for i in range(len(wanted))]


def checked_jvp(mod: IRModule, name: str) -> GlobalVar:
    """The function of ``custom_jvp``; raises ``PassError`` without one, or for a wrong type."""
    fn = mod[name]
    if JVP not in fn.attrs:
        raise PassError(f"forward mode through @{name}, which has a rule for reverse mode alone",
                        where=fn.span, help="give it custom_jvp, which serves both modes, or take "
                        'reverse mode alone: jacobian(grad(f), mode="reverse")')
    rule = _rule(mod, name, fn.attrs[JVP])
    y = type_of(fn.body)
    wanted = FuncType((*_types(fn.params), *_wanted(fn)), TupleType((y, y)))
    if _function_type(rule) != wanted:
        raise _wrong(mod, name, rule, str(wanted))
    return rule


def _rule(mod: IRModule, name: str, rule: str) -> GlobalVar:
    if rule not in mod:
        raise PassError(f"the rule of @{name} is not in the module", where=mod[name].span,
                        got=f"@{rule}", expected=", ".join(f"@{n}" for n in mod.functions))
    fn = mod[rule]
    type_ = FuncType(_types(fn.params), type_of(fn.body), fn.type_params)
    return GlobalVar(rule, span=fn.span, checked_type=type_)


def _wrong(mod: IRModule, name: str, rule: GlobalVar, expected: str) -> PassError:
    return PassError(f"the rule @{rule.name} of @{name} has the wrong type",
                     where=mod[rule.name].span, expected=expected, got=rule.checked_type)


def _wanted(fn: Function) -> tuple[Type, ...]:
    return tuple(type_of(p) for p in fn.params if is_differentiable(type_of(p)))


def _types(values: Sequence[Expr]) -> tuple[Type, ...]:
    return tuple(map(type_of, values))


def _listed(types: Sequence[Type]) -> str:
    return ", ".join(map(str, types))


def _function_type(rule: GlobalVar) -> FuncType:
    type_ = rule.checked_type
    assert isinstance(type_, FuncType)
    return type_
