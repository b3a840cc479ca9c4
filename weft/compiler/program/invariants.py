"""What every round of a loop computes anew to the same end.

Graph normal form orders a value by its uses alone, so what only a loop uses stands inside of
it. Kernels have no effects: such a value may as well be computed once before the loop. That is done
for what every round comes to, in the branches that go on to the next one too; should there be no
round at all, it was computed for nothing.
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
    """The lets of the loop ``key`` that depend on nothing it changes, in order.

    The function is in A-normal form; ``changing`` are its parameters that vary.
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
    """Whether ``value`` is a kernel's, or rearranges what is there."""
    if isinstance(value, Call):
        return isinstance(value.op, Op) or (isinstance(value.op, Function)
                                            and is_primitive(value.op))
    return isinstance(value, (Tuple, TupleGetItem))
