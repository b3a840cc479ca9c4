"""Products on CUDA: values in the evaluator, instructions, and what the assembler says."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.unit.strategy.kernels import random_arguments
from weft.codegen.cuda.build import build_kernel_object
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.runtime.devices.cuda.image import KernelObject
from weft.strategy import lower_function, schedule_function
from weft.strategy.implementation import Implementation
from weft.target import CudaTarget
from weft.tir.eval import evaluate
from weft.transform.analysis.reference import evaluate as evaluate_reference

A100 = CudaTarget("sm_80")
H100 = CudaTarget("sm_90a")


def check_values(function: Function, implementation: Implementation | None, *,
                 target: CudaTarget = A100, rtol: float = 1e-4) -> None:
    """Compare what the loops compute with the reference, in the evaluator, which finds races."""
    nest = schedule_function(function, target, implementation).loop_nest()
    arguments = random_arguments(function)
    expected = evaluate_reference(IRModule.from_expr(function), arguments)
    results = expected if isinstance(expected, tuple) else (expected,)
    outputs = [np.full(r.shape, -77, r.dtype) for r in results]
    evaluate(nest, *arguments, *outputs)
    for got, want in zip(outputs, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def built(function: Function, target: CudaTarget = A100,
          implementation: Implementation | None = None) -> KernelObject:
    """The PTX of a kernel."""
    return build_kernel_object(lower_function(function, target, "k", implementation).func, target)


def instructions(kernel: KernelObject) -> Counter[str]:
    """How often each instruction stands in the PTX, by its whole mnemonic."""
    found = (re.match(r"\s*(?:@!?%p\d+ )?([a-z][a-z0-9_]*(?:\.[a-z0-9_:]+)+)", line)
             for line in kernel.ptx.splitlines())
    return Counter(match[1] for match in found if match)


def assembled(kernel: KernelObject, tmp_path: Path) -> str:
    """What ptxas says of a kernel; the test is skipped without it."""
    nvidia = pytest.importorskip("nvidia", reason="the CUDA assembler is not installed")
    ptxas = Path(next(iter(nvidia.__path__))) / "cu13" / "bin" / "ptxas"
    if not ptxas.exists():
        pytest.skip("the CUDA assembler is not installed")
    source = tmp_path / "k.ptx"
    source.write_text(kernel.ptx)
    done = subprocess.run([ptxas, "-v", "-arch", kernel.arch, "-o", tmp_path / "k.cubin", source],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr + done.stdout


def spills(report: str) -> int:
    """Bytes that the kernels of a report spill."""
    return sum(map(int, re.findall(r"(\d+) bytes spill", report)))
