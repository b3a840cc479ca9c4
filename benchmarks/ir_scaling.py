"""Time of each step and each registered pass for programs of growing depth.

``python -m benchmarks.ir_scaling [--programs call_chain,..] [--only pass,..] [1000 10000 100000]``
prints, for each program, seconds by step and size, and what the whole pipeline takes for a call of
the program. A row is marked if the time for the largest
size is more than three times what linear growth predicts. Nested tuples run at a tenth of the
sizes. The exit status is 1 if a row is marked.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import numpy as np

import weft
from benchmarks.deep_programs import (
    EVERY_PASS,
    call_chain,
    deep_codegen,
    every_pass,
    let_chain,
    residual_blocks,
    shared_calls,
    shared_pairs,
    tuple_nest,
)
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir import (
    Call,
    IRModule,
    Tuple,
    assert_structural_equal,
    infer_type,
    parse,
    parse_pipeline,
    post_order,
    structural_hash,
    verify_module,
)
from weft.ir.json.format import load_json, save_json
from weft.support.interpreter import rare_collections
from weft.transform import evaluate

# Each program, and the divisor of its sizes.
PROGRAMS: dict[str, tuple[Callable[[int], IRModule], int]] = {
    "call_chain": (call_chain, 1),
    "residual_blocks": (residual_blocks, 1),
    "let_chain": (let_chain, 1),
    "shared_calls": (shared_calls, 1),
    "shared_pairs": (shared_pairs, 1),
    "tuple_nest": (tuple_nest, 10),
}
# Caches, garbage collection and other load make single runs vary.
TOLERANCE = 3.0
# Seconds; growth cannot be measured on shorter times.
MEASURABLE = 0.05


PIPELINE = "pipeline"
Step = Callable[[], object]


def steps(make: Callable[[int], IRModule], depth: int) -> Iterator[tuple[str, Step]]:
    """The steps on one program by name; later steps use the results of earlier ones."""
    made: dict[str, IRModule] = {}
    texts: dict[str, str] = {}
    x = np.ones((2, 3), np.float32)
    yield "build", lambda: made.update(built=make(depth))
    yield "infer", lambda: made.update(typed=infer_type(made.pop("built")))
    yield "infer 100", lambda: made.update(many=infer_type(many(make, depth // 100)))
    yield "infer again", lambda: infer_type(made["typed"])
    yield "infer a change", lambda: infer_type(_changed(made["typed"]))
    yield "infer one of 100", lambda: infer_type(_changed(made["many"]))
    yield "verify", lambda: verify_module(made["typed"])
    _run_pipeline(make(1))  # imports what it needs
    yield PIPELINE, lambda: _run_pipeline(made["typed"])
    yield "print", lambda: texts.update(text=str(made["typed"]))
    yield "parse", lambda: made.update(parsed=parse(texts["text"]))
    yield "compare", lambda: assert_structural_equal(made["parsed"], made["typed"])
    yield "hash", lambda: structural_hash(made["typed"])
    yield "save json", lambda: texts.update(json=save_json(made["typed"]))
    yield "load json", lambda: made.update(loaded=load_json(texts["json"]))
    yield "interpret", lambda: evaluate(made["typed"], [x])
    yield "differentiate", lambda: weft.value_and_grad(made["typed"], cotangent="ones")
    for text in every_pass():
        pass_ = parse_pipeline(text)
        yield text, lambda pass_=pass_: pass_(made["typed"], EVERY_PASS)
    yield "free", made.clear


def _run_pipeline(mod: IRModule) -> None:
    """The graph passes, under the conditions of ``weft.compile``."""
    with rare_collections():
        run_pipeline(mod, CompileOptions.make("cpu"))


def many(make: Callable[[int], IRModule], depth: int) -> IRModule:
    """A hundred programs in one module."""
    return IRModule({f"f{i}": make(depth)["main"] for i in range(99)} | make(depth).functions)


def _changed(mod: IRModule) -> IRModule:
    """``mod`` with one more node at the result of ``main``."""
    main = mod["main"]
    return mod.with_function("main", main.replace(body=Tuple((main.body, main.params[0]))))


def costs(make: Callable[[int], IRModule], depth: int, only: Sequence[str]) -> dict[str, float]:
    """Seconds of each step; with ``only``, of the first steps and of the passes named there."""
    seconds: dict[str, float] = {}
    for name, step in steps(make, depth):
        if only and seconds.keys() >= {"infer"} and name.partition("{")[0] not in (*only, PIPELINE):
            continue
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stderr(nowhere):
            start = time.process_time()  # print_ir writes to the terminal
            step()
            seconds[name] = time.process_time() - start
    return seconds


def _calls(mod: IRModule) -> int:
    return sum(isinstance(node, Call) for fn in mod.functions.values() for node in post_order(fn))


def growth(sizes: Sequence[int], times: Sequence[float]) -> float:
    """Time for the largest size, relative to linear growth from the size before."""
    if len(sizes) < 2 or times[-1] < MEASURABLE:
        return 1.0
    return times[-1] / (max(times[-2], MEASURABLE / 10) * sizes[-1] / sizes[-2])


def table(name: str, sizes: Sequence[int], only: Sequence[str]) -> bool:
    """Print the costs of one program; returns whether all of them are linear."""
    make, divisor = PROGRAMS[name]
    depths = [max(size // divisor, 1) for size in sizes]
    rows = [costs(make, depth, only) for depth in depths]
    click.echo(f"\n{name:>26} {''.join(f'{depth:>12,}' for depth in depths)}")
    per_call = [row[PIPELINE] / max(_calls(make(depth)), 1) * 1e6
                for row, depth in zip(rows, depths, strict=True)]
    click.echo(f"{'pipeline, for each call':>26} {''.join(f'{t:>9.0f} us' for t in per_call)}")
    linear = True
    for step in rows[0]:
        times = [row[step] for row in rows]
        found = growth(depths, times)
        note = f"  {found:.1f} times linear" if found > TOLERANCE else ""
        linear = linear and not note
        click.echo(f"{step.partition('{')[0]:>26} {''.join(f'{t:>10.3f} s' for t in times)}{note}")
    return linear


@click.command(help=__doc__)
@click.argument("sizes", nargs=-1, type=int)
@click.option("--programs", default=",".join(PROGRAMS), show_default=True)
@click.option("--only", default="", help="Passes to run, all by default.")
def main(sizes: tuple[int, ...], programs: str, only: str) -> None:
    """Measure and print."""
    names = [name for name in only.split(",") if name]
    with deep_codegen():
        found = [
            table(program, sizes or (1_000, 10_000, 100_000), names)
            for program in programs.split(",")
        ]
    sys.exit(0 if all(found) else 1)


if __name__ == "__main__":
    main()
