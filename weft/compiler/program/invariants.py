"""Loop-invariant code motion for programs with loops.

The graph form of the IR does not say where a value is computed, so a value used only in a loop is
computed inside it. Kernels are pure: an invariant one may be computed once before the loop. Only
values that every iteration computes are moved, including those in branches that continue the loop.
If the loop does not iterate at all, they were computed in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from weft.compiler.program.function_calls import FunctionCalls, FunctionKey
from weft.ir.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from weft.ir.op import Op
from weft.ir.visitor import children
from weft.transform.analysis.graph import is_primitive


def loop_invariants(
    calls: FunctionCalls, key: FunctionKey, changing: Collection[Var]
) -> Iterator[tuple[Var, Expr]]:
    """The invariant lets of the loop ``key``, in order.

    The function is in A-normal form; ``changing`` are its loop-carried parameters.
    """
    varies = set(changing)
    pending: list[Expr] = [calls.function(key).body]
    while pending:
        scope = pending.pop()
        while isinstance(scope, Let) and scope.body is not scope.var:
            if _is_pure(scope.value) and varies.isdisjoint(children(scope.value)):
                yield scope.var, scope.value
            else:
                varies.add(scope.var)
            scope = scope.body
        last = scope.value if isinstance(scope, Let) else scope
        if isinstance(last, If):
            branches = (last.true_branch, last.false_branch)
            pending += [branch for branch in branches if calls.ends_in(branch, (key,))]


def _is_pure(value: Expr) -> bool:
    """Whether ``value`` is a kernel call, a tuple or a projection."""
    if isinstance(value, Call):
        return isinstance(value.op, Op) or (isinstance(value.op, Function)
                                            and is_primitive(value.op))
    return isinstance(value, (Tuple, TupleGetItem))
