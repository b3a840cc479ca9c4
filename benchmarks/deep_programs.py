"""Programs of any depth, and every registered pass with its required options.

The depth tests and the scaling benchmark share these programs and passes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from weft import op
from weft.ir import (
    Call,
    Expr,
    Function,
    IRModule,
    Let,
    Tuple,
    TupleGetItem,
    Var,
    const,
    parse_pipeline,
    var,
)
from weft.ir.passes import PASSES, PassContext, Sequential
from weft.ir.rewrite.pattern import any_
from weft.transform.external.codegen import (
    EXTERNAL_CODEGENS,
    CompositePattern,
    register_external_codegen,
)

EVERY_PASS = PassContext(opt_level=4)
CODEGEN = "deep"

# Options without defaults. All other passes run with their defaults.
OPTIONS = {
    "combine_parallel_op": "op=tanh,min_branches=2",
    "convert_layout": "layouts=(nn.conv2d:NHWC:HWIO)",
    "fixed_point": "passes=(simplify_expr fold_constant eliminate_identity)",
    "generate_external": f"compiler={CODEGEN}",
    "merge_composite": f"compiler={CODEGEN}",
    "partition_graph": f"compiler={CODEGEN}",
}


def every_pass() -> list[str]:
    """All passes of weft as text with their options, sorted by name.

    Passes registered by users and tests are left out.
    """
    own = sorted(name for name in PASSES if PASSES.get(name).__module__.startswith("weft."))
    return [f"{name}{{{OPTIONS[name]}}}" if name in OPTIONS else name for name in own]


@contextmanager
def deep_codegen() -> Iterator[None]:
    """Within the context, register a code generator for ``exp`` and for ``relu`` of ``add``."""
    x, y = any_("x"), any_("y")
    pattern = CompositePattern("add_relu", op.nn.relu(op.add(x, y)))
    register_external_codegen(
        CODEGEN, supports=["exp"], patterns=[pattern], generate=lambda region: region.function
    )
    try:
        yield
    finally:
        EXTERNAL_CODEGENS.remove(CODEGEN)


def make_pass(text: str) -> Sequential:
    return parse_pipeline(text)


def call_chain(depth: int) -> IRModule:
    """A chain of ``depth`` calls that cycles through tanh, add, relu and multiply."""
    x, half = var("x", (2, 3)), const(np.full((2, 3), 0.5, np.float32))
    steps: list[Callable[[Expr], Expr]] = [
        lambda e: Call(op.tanh, (e,)),
        lambda e: op.add(e, half),
        lambda e: Call(op.nn.relu, (e,)),
        lambda e: op.multiply(e, half),
    ]
    body: Expr = x
    for index in range(depth):
        body = steps[index % len(steps)](body)
    return IRModule.from_expr(Function((x,), body))


def residual_blocks(depth: int) -> IRModule:
    """About ``depth`` calls: convolutions, batch norm, relu and additions, as image models have."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Expr:
        return const(rng.uniform(0.1, 1.0, shape).astype(np.float32))

    x = var("x", (1, 16, 8, 8))
    body: Expr = x
    for _ in range(max(depth // 6, 1)):
        inner = op.nn.conv2d(body, weight(16, 16, 3, 3), padding=(1, 1))
        inner = op.nn.relu(op.nn.batch_norm(inner, *(weight(16) for _ in range(4)))[0])
        body = op.nn.relu(op.add(op.nn.conv2d(inner, weight(16, 16, 1, 1)), body))
    return IRModule.from_expr(Function((x,), body))


def let_chain(depth: int) -> IRModule:
    """A chain of lets; each value uses the variable before."""
    x = var("x", (2, 3))
    names = [Var(f"v{i}") for i in range(depth)]
    body: Expr = names[-1]
    for name, before in zip(reversed(names), reversed([x, *names[:-1]]), strict=True):
        body = Let(name, Call(op.tanh, (before,)), body)
    return IRModule.from_expr(Function((x,), body))


def shared_calls(depth: int) -> IRModule:
    """Nested ``maximum(%n, %n)``, with 2**depth paths."""
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Call(op.maximum, (body, body))
    return IRModule.from_expr(Function((x,), body))


def shared_pairs(depth: int) -> IRModule:
    """Like ``shared_calls``, through tuples: ``%n = maximum(%m.0, %m.1)`` where ``%m = (%k, %k)``.
    """
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        pair = Tuple((body, body))
        body = Call(op.maximum, (TupleGetItem(pair, 0), TupleGetItem(pair, 1)))
    return IRModule.from_expr(Function((x,), body))


def tuple_nest(depth: int) -> IRModule:
    """Tuples nested ``depth`` deep; the type is as deep."""
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Tuple((body,))
    return IRModule.from_expr(Function((x,), body))


def shared_types(depth: int) -> IRModule:
    """Nested ``(%n, %n)``: the type, too, has 2**depth paths."""
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Tuple((body, body))
    return IRModule.from_expr(Function((x,), body))


PROGRAMS = (call_chain, let_chain, shared_calls, shared_pairs, tuple_nest)
