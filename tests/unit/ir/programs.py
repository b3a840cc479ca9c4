"""Random well-typed programs for property tests."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from weft import op
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)

SHAPE = (2, 3)
DTYPES = (
    np.float32,
    np.float64,
    np.float16,
    np.int8,
    np.int32,
    np.int64,
    np.uint8,
    np.bool_,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.int4,
)


@dataclass
class _Maker:
    """Draws one choice at a time; ``pool`` holds what can be shared."""

    draw: st.DrawFn
    depth: int = 0

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def expression(self, pool: list[Expr], steps: int) -> Expr:
        pool = list(pool)
        for _ in range(steps):
            pool.append(self.node(pool))
        return pool[-1]

    def node(self, pool: list[Expr]) -> Expr:
        x, y = (pool[self.number(0, len(pool) - 1)] for _ in range(2))
        kind = self.number(0, 9 if self.depth < 2 else 6)
        if kind == 0:
            return op.add(x, y)
        if kind == 1:
            return op.nn.relu(x)
        if kind == 2:
            return op.clip(x, a_min=-1.0, a_max=float(self.number(0, 5)))
        if kind == 3:
            return op.multiply(x, const(np.full(SHAPE, self.number(0, 3), np.float32)))
        if kind == 4:
            return TupleGetItem(Tuple((x, y)), self.number(0, 1))
        if kind == 5:
            return op.nn.softmax(x, axis=-1)
        if kind == 6:
            return op.add(x, Constant(np.full((40, *SHAPE), 0.5, np.float32)[0, :1]))
        return self.scoped(kind, pool, x, y)

    def scoped(self, kind: int, pool: list[Expr], x: Expr, y: Expr) -> Expr:
        self.depth += 1
        steps = self.number(1, 3)
        try:
            if kind == 7:
                bound = Var("v")
                return Let(bound, x, self.expression([*pool, bound], steps))
            if kind == 8:
                cond = const(bool(self.number(0, 1)))
                return If(cond, self.expression(pool, steps), self.expression(pool, steps))
            param = var("p", SHAPE)
            local = Function((param,), self.expression([*pool, param], steps))
            ref = RefCreate(Call(local, (y,)))
            written, unit = Var("r"), Var("u")
            body = Let(unit, RefWrite(written, x), RefRead(written))
            return Let(written, ref, body)
        finally:
            self.depth -= 1


@st.composite
def modules(draw: st.DrawFn) -> IRModule:
    """A module of one or two functions over float32 tensors of ``SHAPE``."""
    make = _Maker(draw)
    x, y = var("x", SHAPE), var("x", SHAPE)  # namesakes: printing must tell them apart
    helper = Function((x,), make.expression([x], make.number(1, 4)), attrs={"primitive": True})
    p, q = var("p", SHAPE), var("data:0", SHAPE)
    start: list[Expr] = [p, q, Call(GlobalVar("helper"), (p,))]
    main = Function((p, q), make.expression(start, make.number(1, 8)))
    assert y is not x
    return IRModule({"helper": helper, "main": main}, attrs={"input_names": ("p", "data:0")})


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Arrays of every dtype with arbitrary bits, up to rank 3, empty ones among them."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    size = int(np.prod(shape, dtype=np.int64))
    if dtype.name in ("bool", "int4"):
        values = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
        return np.array(values, np.int8).astype(dtype).reshape(shape)
    count = size * dtype.itemsize
    return np.frombuffer(draw(st.binary(min_size=count, max_size=count)), dtype).reshape(shape)
