"""What it costs to build, type, print, parse, compare, hash and free programs of growing depth.

``python -m benchmarks.ir_scaling [1000 10000 100000]`` prints seconds for each size; a program
whose costs are linear has columns in the ratio of the sizes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from weft import op
from weft.ir import (
    Call,
    Expr,
    Function,
    IRModule,
    Let,
    Tuple,
    Var,
    assert_structural_equal,
    infer_type,
    parse,
    structural_hash,
    var,
    verify_module,
)
from weft.ir.json_format import load_json, save_json


def call_chain(depth: int) -> IRModule:
    """``relu(relu(.. relu(x)))``."""
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Call(op.nn.relu, (body,))
    return IRModule.from_expr(Function((x,), body))


def let_chain(depth: int) -> IRModule:
    """Lets whose values use the variable before."""
    x = var("x", (2, 3))
    names = [Var(f"v{i}") for i in range(depth)]
    body: Expr = names[-1]
    for name, before in zip(reversed(names), reversed([x, *names[:-1]]), strict=True):
        body = Let(name, Call(op.exp, (before,)), body)
    return IRModule.from_expr(Function((x,), body))


def shared_dag(depth: int) -> IRModule:
    """``add(%n, %n)`` all the way down: two to the power of ``depth`` paths."""
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Call(op.add, (body, body))
    return IRModule.from_expr(Function((x,), body))


def tuple_nest(depth: int) -> IRModule:
    """A tuple in a tuple in a tuple; the type is as deep."""
    x = var("x", (2, 3))
    body: Expr = x
    for _ in range(depth):
        body = Tuple((body,))
    return IRModule.from_expr(Function((x,), body))


class Stopwatch:
    """Seconds by name of the step, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, step: Callable[[], object]) -> None:
        start = time.process_time()
        step()
        self.seconds[name] = time.process_time() - start


def costs(make: Callable[[int], IRModule], depth: int) -> dict[str, float]:
    """Seconds of each step for a program of this depth."""
    clock = Stopwatch()
    made: dict[str, IRModule] = {}
    texts: dict[str, str] = {}
    clock("build", lambda: made.update(built=make(depth)))
    clock("infer", lambda: made.update(typed=infer_type(made["built"])))
    clock("infer again", lambda: infer_type(made["typed"]))
    clock("verify", lambda: verify_module(made["typed"]))
    clock("print", lambda: texts.update(text=str(made["typed"])))
    clock("parse", lambda: made.update(parsed=parse(texts["text"])))
    clock("compare", lambda: assert_structural_equal(made["parsed"], made["typed"]))
    clock("hash", lambda: structural_hash(made["typed"]))
    clock("save json", lambda: texts.update(json=save_json(made["typed"])))
    clock("load json", lambda: made.update(loaded=load_json(texts["json"])))
    clock("free", made.clear)
    return clock.seconds


def main() -> None:
    sizes = [int(a) for a in sys.argv[1:]] or [1_000, 10_000, 100_000]
    for make in (call_chain, let_chain, shared_dag, tuple_nest):
        table = [costs(make, size) for size in sizes]
        print(f"\n{make.__name__:>12} {''.join(f'{size:>12,}' for size in sizes)}")
        for step in table[0]:
            print(f"{step:>12} {''.join(f'{row[step]:>10.3f} s' for row in table)}")


if __name__ == "__main__":
    main()
