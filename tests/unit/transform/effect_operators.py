"""An operator with a side effect, which tests observe, and random programs that call it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from weft import op, te
from weft.ir import OPS, Attrs, IRModule, Op, OpTraits, define_op, infer_type, op_case, var
from weft.ir.attrs import attr
from weft.ir.expr import Expr, Function, If, Let, RefCreate, RefRead, RefWrite, Tuple, Var
from weft.ir.typing.relations import identity_relation
from weft.op.batching import leading
from weft.transform.analysis.reference import evaluate

SHAPE = (4,)


@dataclass(frozen=True, kw_only=True)
class RecordAttrs(Attrs):
    tag: int = attr(0, doc="what the log shows")


@dataclass(eq=False)
class Effects:
    """The operator ``test.record``, the identity, and the log of its evaluations and of writes."""

    record: Op
    log: list[object] = field(default_factory=list)

    def of(self, mod: IRModule, inputs: list[np.ndarray]) -> list[object]:
        """What evaluating ``main`` records and writes, in order."""
        self.log.clear()
        evaluate(mod, inputs, on_write=lambda _, value: self.log.append(_rounded(value)))
        return list(self.log)


def _rounded(value: np.ndarray) -> tuple[float, ...]:
    return tuple(np.round(np.ravel(value).astype(np.float64), 4))


@contextmanager
def recording() -> Iterator[Effects]:
    """Register ``test.record`` inside the context."""
    log: list[object] = []

    def compute(x: te.Tensor, _attrs: RecordAttrs) -> te.Tensor:
        """``x``, and an entry in the log of the test."""
        return te.compute(x.shape, lambda *i: x[i])

    def reference(x: np.ndarray, tag: int) -> np.ndarray:
        log.append(tag)
        return np.copy(x)

    record = define_op("test.record", attrs=RecordAttrs, relation=identity_relation,
                       inputs=("x",), traits=OpTraits(has_effect=True))(compute)
    record.gradient(lambda _call, _y, dy: [dy])
    record.jvp(lambda _call, _y, tangents: tangents[0])
    record.batching(leading)
    record.spec(reference, op_case(SHAPE))
    try:
        yield Effects(record, log)
    finally:
        OPS.remove("test.record")


@st.composite
def programs_with_effects(draw: st.DrawFn, *, references: bool = True, choices: bool = True
                          ) -> IRModule:
    """Random programs of tensors, records, writes to a reference, choices and control edges.

    Some records are bound by ``let``, with or without a use; others are run by a control edge
    alone.
    """
    record = OPS.get("test.record")
    x, y, ref = var("x", SHAPE), var("y", SHAPE), Var("r")
    values: list[Expr] = [x, y]
    waits: list[Expr] = []  # run by control edges
    with_reference = references and draw(st.booleans())
    bindings: list[tuple[Var, Expr]] = [(ref, RefCreate(x))] if with_reference else []
    kinds = ["pure", "pure", "bound", "unused", "edge", "barrier", *(["choice"] if choices else []),
             *(["write", "read"] if with_reference else [])]

    def source() -> Expr:
        return draw(st.sampled_from(values))

    def after() -> Expr:
        edges = draw(st.lists(st.sampled_from([*values, *waits]), min_size=1, max_size=3))
        edges += waits
        waits.clear()
        return edges[0] if len(edges) == 1 else Tuple(tuple(edges))

    for tag in range(draw(st.integers(2, 8))):
        kind = draw(st.sampled_from(kinds))
        if kind == "pure":
            one = draw(st.sampled_from([op.tanh, op.negative, op.copy, op.nn.relu]))
            two = draw(st.sampled_from([op.add, op.multiply, op.maximum]))
            values.append(two(one(source()), draw(st.sampled_from([source(), op.tanh(source())]))))
        elif kind in ("bound", "unused"):
            name = Var(f"v{tag}")
            bindings.append((name, record(source(), tag=tag)))
            if kind == "bound":
                values.append(name)
        elif kind == "edge":
            waits.append(record(source(), tag=tag))
        elif kind == "barrier":
            values.append(op.annotation.barrier(source(), after()))
        elif kind == "write":
            bindings.append((Var(f"w{tag}"), RefWrite(ref, op.tanh(source()))))
        elif kind == "read":
            name = Var(f"d{tag}")
            bindings.append((name, RefRead(ref)))
            values.append(name)
        else:
            name = Var(f"c{tag}")
            cond = op.less(op.sum(source()), op.sum(source()))
            chosen = If(cond, record(op.tanh(x), tag=tag), record(op.negative(y), tag=-tag))
            bindings.append((name, chosen))
            values.append(name)
    result: Expr = Tuple((values[-1], values[len(values) // 2]))
    if waits:
        result = Tuple((op.annotation.barrier(values[-1], after()), values[-1]))
    for name, value in reversed(bindings):
        result = Let(name, value, result)
    return infer_type(IRModule.from_expr(Function((x, y), result)))
