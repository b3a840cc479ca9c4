"""Gradients of functions of the library: ``SymbolicGradient``, and its definition in the module.

A call is lowered to one of a function of the module, which gets its body when the module is
complete, because the derivative of a loop consists of functions and data types of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from weft import ir
from weft.support.errors import InvalidModelError
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.first_order import reached_functions
from weft.transform.autodiff.reverse.gradient import Gradient
from weft.transform.passes.inline import Inline
from weft.transform.passes.remove_unused_functions import RemoveUnusedFunctions


def gradient_call(name: str, function: ir.Function, args: Sequence[ir.Expr], span: ir.Span
                  ) -> tuple[ir.Expr, ...]:
    """The gradients of the parameters of ``function``, which becomes that of a function ``name``.

    ``args`` are the arguments, then the gradient of each result; integers have no gradient and
    get zeros. Raises ``InvalidModelError`` for other numbers and types of arguments.
    """
    params, result = function.params, function.body.checked_type
    assert result is not None
    results = result.fields if isinstance(result, ir.TupleType) else (result,)
    xs, dys = args[:len(params)], args[len(params):]
    if len(dys) != len(results):
        raise InvalidModelError("a gradient takes that of each result", where=span,
                                expected=f"{len(params)} arguments and {len(results)} gradients",
                                got=f"{len(args)} tensors")
    for dy, type_ in zip(dys, results, strict=True):
        if dy.checked_type != type_ or not is_differentiable(type_):
            raise InvalidModelError("the gradient of a result has another type", where=span,
                                    expected=str(type_), got=str(dy.checked_type))
    wanted = [p for p in params if p.checked_type is not None and is_differentiable(p.checked_type)]
    grads = ir.TupleType(tuple(p.checked_type for p in wanted))  # type: ignore[arg-type]
    pair = ir.TupleType((result, grads))
    signature = ir.FuncType((*(p.checked_type for p in params), result), pair)  # type: ignore[arg-type]
    seed = dys[0] if isinstance(result, ir.TensorType) else ir.Tuple(
        tuple(dys), span=span, checked_type=result)
    callee = ir.GlobalVar(name, span=span, checked_type=signature)
    call = ir.Call(callee, (*xs, seed), span=span, checked_type=pair)
    both = ir.TupleGetItem(call, 1, span=span, checked_type=grads)
    found = {p: ir.TupleGetItem(both, i, span=span, checked_type=p.checked_type)
             for i, p in enumerate(wanted)}
    return tuple(found[p] if p in found else _zeros(x) for p, x in zip(params, xs, strict=True))


def _zeros(x: ir.Expr) -> ir.Expr:
    from_type = x.checked_type
    assert isinstance(from_type, ir.TensorType)
    made: ir.Expr = ir.infer_expr(ir.get_op("zeros_like")(x), trust=True)
    return made


def with_gradients(functions: Mapping[str, ir.Function], names: Sequence[str]) -> ir.IRModule:
    """A module of ``functions``, in which those of ``names`` give their value and gradients.

    A function that calls another one of ``names`` comes after it.
    """
    made = ir.IRModule(dict(functions))
    for index, name in enumerate(names):
        waiting = {*names[index + 1:]}
        later = [n for n in made.functions
                 if n != name and waiting.intersection(reached_functions(made, n))]
        part = ir.IRModule({n: f for n, f in made.functions.items() if n not in later},
                           type_definitions=made.type_definitions)
        after = Gradient(entry=name, cotangent="parameter", training=False).run_module(
            ir.infer_type(part), ir.PassContext())
        made = ir.IRModule({**after.functions, **{n: made[n] for n in later}},
                           type_definitions=after.type_definitions)
    return made


def inlined(mod: ir.IRModule, names: Sequence[str]) -> ir.IRModule:
    """``mod`` with functions inlined, so that gradients share what the graph computes anyway."""
    after = Inline(functions=tuple(names)).run_module(mod, ir.PassContext())
    kept = RemoveUnusedFunctions().run_module(after, ir.PassContext())
    return dataclasses.replace(ir.infer_type(kept), named=mod.named)
