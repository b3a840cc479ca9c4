"""``vmap`` of each case of each operator against a loop over the examples, and a table of both.

``python -m tests.unit.transform.autodiff.batching_cases`` prints which operators have a rule of
their own and which run example by example.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.unit.op.harness import flatten, make_call, make_inputs, parameters_of
from weft.ir.expr import Call, Function, Var
from weft.ir.module import IRModule
from weft.ir.op import OPS, Case, Op
from weft.ir.types import TensorType, TupleType, has_any
from weft.support.errors import PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.batching.vectorize import vectorized

EXAMPLES = 3


@dataclass(frozen=True)
class Batch:
    """A case with several examples; ``which`` says for each tensor whether examples differ."""

    op: Op
    call: Call
    params: tuple[Var, ...]
    examples: tuple[list[np.ndarray], ...]
    which: tuple[bool, ...]

    @property
    def module(self) -> IRModule:
        return IRModule.from_expr(Function(self.params, self.call))

    @property
    def in_axes(self) -> tuple[int | None, ...]:
        return tuple(0 if batched else None for batched in self.which)

    def inputs(self) -> list[np.ndarray]:
        return [np.stack([e[i] for e in self.examples]) if batched else self.examples[0][i]
                for i, batched in enumerate(self.which)]

    def expected(self) -> list[np.ndarray]:
        """Each result, stacked over the examples."""
        results = [_as_tuple(evaluate(self.module, [
            e[i] if batched else self.examples[0][i] for i, batched in enumerate(self.which)]))
            for e in self.examples]
        return [np.stack(parts) for parts in zip(*results, strict=True)]


def batches(op: Op, one: Case, number: int, *, most: int) -> Iterator[Batch]:
    """The case with all tensors batched, and with up to ``most - 1`` random choices of them."""
    sets = [make_inputs(op, one, seed=s) for s in range(EXAMPLES)]
    call = make_call(op, one, sets[0])
    params = parameters_of(call)
    choices = [c for c in itertools.product((True, False), repeat=len(params)) if any(c)]
    rng = np.random.default_rng(number)
    picked = rng.permutation(len(choices) - 1)[:most - 1] + 1 if len(choices) > 1 else []
    for choice in [choices[i] for i in (0, *picked)] if choices else []:
        yield Batch(op, call, params, tuple(flatten(s) for s in sets), choice)


def has_fixed_results(call: Call) -> bool:
    """Whether the sizes of the results do not depend on data."""
    type_ = call.checked_type
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return not any(isinstance(f, TensorType) and has_any(f.shape) for f in fields)


def check(batch: Batch) -> bool:
    """Compare with the loop; whether the operator ran by a rule."""
    after, repeated = vectorized(batch.module, axis_size=EXAMPLES, in_axes=batch.in_axes)
    got = _as_tuple(evaluate(after, batch.inputs()))
    for value, wanted in zip(got, batch.expected(), strict=True):
        assert value.dtype == wanted.dtype
        np.testing.assert_allclose(value, wanted, rtol=1e-4, atol=1e-5)
    return not repeated


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def main() -> None:
    """Print the table."""
    rows: dict[str, list[str]] = {"by a rule": [], "partly by a rule": [], "example by example": [],
                                  "refused": []}
    for op in map(OPS.get, OPS):
        ran: list[bool] = []
        for number, one in enumerate(op.cases):
            for batch in batches(op, one, number, most=4):
                try:
                    ran.append(check(batch))
                except PassError:
                    continue
        if op.cases and op.inputs:
            kind = "refused" if not ran else "by a rule" if all(ran) else \
                "partly by a rule" if any(ran) else "example by example"
            rows[kind].append(op.name)
    for kind, names in rows.items():
        print(f"{kind}: {len(names)}\n  {' '.join(names) if kind != 'by a rule' else ''}")


if __name__ == "__main__":
    main()
