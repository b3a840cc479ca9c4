"""Runs the cases of operators on an emulated GPU.

``python -m tests.unit.cuda.op.cuda_cases [PATTERN] [--nvvm] [--first]`` runs the cases whose ids
match and prints the ones that fail or run on the host and are not in ``cuda_exceptions.py``, as
``id: reason``; ``make test-cuda`` runs all of them, ``WEFT_TEST_SHARE`` a seeded share. The cases
run in another process: a fatal error of LLVM ends it and costs one case.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from fnmatch import fnmatch

import numpy as np

import weft
import weft.op
from tests.sampling import SEED, sampled, seed
from tests.unit.cuda.op.cuda_exceptions import FAILING, ON_HOST, reason_for
from tests.unit.op.harness import (
    assert_close,
    flatten,
    make_call,
    make_inputs,
    parameters_of,
    reference_outputs,
)
from weft.ir.dynamic import needs_values
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.op import OPS
from weft.runtime.device import HOST

ON_THE_HOST = "runs on the host"
TARGETS = ("cuda -arch=sm_90a", "cuda -arch=sm_90a -codegen=nvvm")


def case_ids(first: bool = False) -> list[tuple[str, int]]:
    """Operators and numbers of cases; ``first`` gives one case of each operator."""
    return [(name, number) for name in OPS for number, _ in enumerate(OPS.get(name).cases)
            if (not first or number == 0) and not needs_values(OPS.get(name))]


def run_case(name: str, number: int, target: str, driver: str = "emulate") -> bool:
    """Compile one case for ``target``, run it and compare; whether all of it ran on the device.

    ``driver`` is the setting ``WEFT_CUDA``.
    """
    op = OPS.get(name)
    one = op.cases[number]
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    expected = reference_outputs(call, arrays)
    module = IRModule.from_expr(Function(parameters_of(call), call))
    with weft.config(cuda=driver):
        model = weft.compile(module, target=target)
        found = model(*flatten(arrays))
    results = found if isinstance(found, (tuple, list)) else (found,)
    assert len(results) == len(expected)
    for got, want in zip(results, expected, strict=True):
        assert_close(np.asarray(got), want, one)
    return all(step.device != HOST for step in model.manifest.steps)


def _outcome(case: tuple[str, int], target: str) -> str:
    try:
        return "" if run_case(*case, target) else ON_THE_HOST
    except Exception as error:  # noqa: BLE001 - the report of a sweep
        return f"{type(error).__name__}: {' | '.join(str(error).split())[:300]}"


def _outcomes(cases: list[tuple[str, int]], target: str) -> Iterator[tuple[str, int, str]]:
    left = list(cases)
    while left:
        context = multiprocessing.get_context("forkserver")
        with ProcessPoolExecutor(1, context) as pool:
            while left:
                case = left.pop(0)
                try:
                    yield (*case, pool.submit(_outcome, case, target).result(timeout=300))
                except BrokenProcessPool:
                    yield (*case, "the process ended")
                    break


def main() -> None:
    """Run a sweep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--nvvm", action="store_true")
    parser.add_argument("--first", action="store_true", help="one case of each operator")
    options = parser.parse_args()
    cases = [case for case in case_ids(options.first)
             if fnmatch(f"{case[0]}-{case[1]}", options.pattern) or fnmatch(
                 case[0], options.pattern)]
    cases = sampled(f"cuda {options.nvvm}", cases, share=1)
    failed = 0
    for name, number, reason in _outcomes(cases, TARGETS[options.nvvm]):
        table = ON_HOST if reason == ON_THE_HOST else FAILING["nvvm" if options.nvvm else "nvptx"]
        if reason and reason_for(table, f"{name}-{number}") is None:
            failed += 1
            print(f"{name}-{number}: {reason}", flush=True)
    print(f"{len(cases)} cases, {failed} failed or on the host; {SEED}={seed()}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
