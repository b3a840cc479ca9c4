"""Values inside a program on calibration data: the program runs with further results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft import op
from weft.compiler.api import compile as compile_program
from weft.ir import Expr, IRModule, infer_expr
from weft.quantization.schemes import Samples
from weft.quantization.static.insert import with_results
from weft.quantization.static.ranges import Histogram
from weft.transform.analysis.graph import tensor_type_of


def observed(module: IRModule, tensors: Sequence[Expr], samples: Samples
             ) -> Iterator[list[np.ndarray]]:
    """The values of tensors of ``main``, batch by batch."""
    if not tensors:
        return
    program = module.with_function("main", with_results(module["main"], tensors))
    compiled = compile_program(program)
    for sample in samples:
        yield [np.asarray(value) for value in compiled.run(None, dict(sample))]


def histograms(module: IRModule, tensors: Sequence[Expr], samples: Samples, *, ends_only: bool
               ) -> dict[Expr, Histogram]:
    """The distribution of each tensor; with ``ends_only`` its least and largest value alone, which
    the program itself finds.
    """
    found = {tensor: Histogram() for tensor in tensors}
    wanted = [*tensors]
    if ends_only:
        wanted = [_typed(reduce(tensor)) for tensor in tensors for reduce in (op.min, op.max)]
    for values in observed(module, wanted, samples):
        for index, value in enumerate(values):
            found[tensors[index // 2 if ends_only else index]].add(value)
    return found


def channel_ends(module: IRModule, tensors: Sequence[Expr], samples: Samples
                 ) -> dict[Expr, np.ndarray]:
    """The least and the largest value in each place of the last axis of each tensor: two rows."""
    wanted = [_typed(reduce(tensor, axis=tuple(range(tensor_type_of(tensor).ndim - 1))))
              for tensor in tensors for reduce in (op.min, op.max)]
    found: dict[Expr, np.ndarray] = {}
    for values in observed(module, wanted, samples):
        for tensor, low, high in zip(tensors, values[::2], values[1::2], strict=True):
            before = found.get(tensor, np.stack([low, high]))
            found[tensor] = np.stack([np.minimum(before[0], low), np.maximum(before[1], high)])
    return found


def relative_errors(module: IRModule, pairs: Sequence[tuple[Expr, Expr]], samples: Samples
                    ) -> list[float]:
    """The Frobenius norm of ``approximate - exact`` over that of ``exact``, over all batches."""
    wanted = [_typed(op.sum(op.multiply(x, x))) for exact, approximate in pairs
              for x in (_typed(op.subtract(approximate, exact)), exact)]
    totals = np.zeros(len(wanted))
    for values in observed(module, wanted, samples):
        totals += [float(v) for v in values]
    return [float(np.sqrt(lost / whole)) if whole else 0.0
            for lost, whole in zip(totals[::2], totals[1::2], strict=True)]


def _typed(expr: Expr) -> Expr:
    return infer_expr(expr, trust=True)
