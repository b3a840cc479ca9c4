"""Builds primitive functions, lowers them for a target, and compares values with NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.ir.expr import Expr, Function, Var
from weft.ir.module import IRModule
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.strategy import LoweredKernel, lower_function
from weft.target import Target
from weft.tir.eval import evaluate
from weft.transform.analysis.reference import evaluate as evaluate_reference

# Small caches and few registers make small shapes take the paths that large ones take elsewhere.
SMALL_CPU = Target.of("llvm -mcpu=haswell")
WIDE_CPU = Target.of("llvm -mcpu=znver5")


def primitive(params: Sequence[Var], body: Expr) -> Function:
    function = infer_expr(Function(tuple(params), body, attrs={"primitive": True}))
    assert isinstance(function, Function)
    return function


def random_arguments(function: Function, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    arrays = []
    for param in function.params:
        type_ = param.checked_type
        assert isinstance(type_, TensorType)
        values = rng.uniform(-1, 1, type_.concrete_shape)
        arrays.append(values > -0.5 if type_.dtype.is_bool else values.astype(type_.dtype.numpy))
    return arrays


def check(function: Function, target: Target, *, rtol: float = 1e-4) -> LoweredKernel:
    """Lower ``function`` and compare what its loops compute with the operators' references."""
    kernel = lower_function(function, target)
    check_kernel(kernel, function, rtol=rtol)
    return kernel


def check_kernel(kernel: LoweredKernel, function: Function, *, rtol: float = 1e-4) -> None:
    """Compare what the loops of ``kernel`` compute with the operators' references."""
    arguments = random_arguments(function)
    expected = evaluate_reference(IRModule.from_expr(function), arguments)
    results = expected if isinstance(expected, tuple) else (expected,)
    outputs = [np.full(r.shape, _unlikely(r.dtype), r.dtype) for r in results]
    evaluate(kernel.func, *arguments, *outputs)
    for got, want in zip(outputs, results, strict=True):
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def _unlikely(dtype: np.dtype) -> float:
    """A value that no result has, so that elements left unwritten are seen."""
    return -77 if dtype.kind == "i" else 77 if dtype.kind in "ub" else np.nan
