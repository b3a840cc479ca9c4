"""Small loop programs in the form that code generation takes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.ir.dtype import DType
from weft.tir import expr as x
from weft.tir.buffer import Buffer, buffer
from weft.tir.expr import PrimExpr, Ramp, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, For, ForKind, Stmt

ZERO = const(0)


def loop(var: Var, extent: int | PrimExpr, body: Stmt, *, start: int | PrimExpr = 0,
         kind: ForKind = ForKind.SERIAL) -> For:  # fmt: skip
    return For(var, x.as_prim(start), x.as_prim(extent), kind, body)


def index_var(name: str = "i") -> Var:
    return Var(name, DType.of("int64"))


def lanes_at(start: PrimExpr | int, lanes: int) -> PrimExpr:
    """The index of ``lanes`` neighbours."""
    return x.as_prim(start) if lanes == 1 else Ramp(x.as_prim(start), const(1), lanes)


def elementwise(
    fn: Callable[..., PrimExpr], sources: list[str], result: str, count: int, lanes: int = 1
) -> PrimFunc:
    """``out[i] = fn(a[i], b[i], …)`` over ``count`` vectors of ``lanes`` elements."""
    inputs = [buffer(f"a{n}", [count * lanes], dtype) for n, dtype in enumerate(sources)]
    output = buffer("out", [count * lanes], result)
    i = index_var()
    where = lanes_at(i * lanes, lanes)
    value = fn(*(b.load(where) for b in inputs))
    body = loop(i, count, BufferStore(output, value, (where,)))
    return PrimFunc("f", (*inputs, output), body)


def numbers(dtype: str, count: int, seed: int = 0) -> np.ndarray:
    """Values of every kind that a dtype has, the extreme ones first."""
    rng = np.random.default_rng(seed)
    kind = DType.of(dtype).numpy
    if dtype == "bool":
        return rng.integers(0, 2, count).astype(bool)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        special = np.array([0, 1, info.max, info.min, info.max - 1, 2, 3], kind)
        rest = rng.integers(info.min, info.max, count, dtype=kind, endpoint=True)
        small = rng.integers(0 if kind.kind == "u" else -9, 10, count).astype(kind)
        mixed = np.where(rng.integers(0, 2, count).astype(bool), rest, small)
        return np.concatenate([special, mixed])[:count]
    special = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, 1e-40, 6e-8, 65504.0, 3e38])
    with np.errstate(over="ignore"):
        rest = rng.standard_normal(count) * np.exp2(rng.integers(-6, 7, count))
        return np.concatenate([special, rest])[:count].astype(kind)


def output_like(dtype: str, count: int) -> np.ndarray:
    return np.zeros(count, DType.of(dtype).numpy)


def params_of(func: PrimFunc) -> list[Buffer]:
    return [p for p in func.params if isinstance(p, Buffer)]
