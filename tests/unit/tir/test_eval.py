"""The evaluator: what each node means, and what it refuses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from weft.codegen.cuda.device_functions import DEVICE_FUNCTIONS
from weft.ir.dtype import DType
from weft.support.errors import InvalidInputError, LoweringError, WellFormedError
from weft.tir import expr as x
from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate, evaluate_expr
from weft.tir.expr import BufferLoad, Call, PrimExpr, Ramp, StringImm, Var, call, const
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import INTRINSICS, intrinsic
from weft.tir.stmt import Allocate, BufferStore, Evaluate, For, ForKind, IfThenElse, seq

ZERO = const(0)


def stored(value: PrimExpr, *inputs: tuple[Buffer, np.ndarray]) -> np.ndarray:
    """``value`` written to a buffer of as many elements as it has lanes."""
    lanes = value.dtype.lanes
    out = buffer("out", (lanes,), value.dtype.element)
    where = ZERO if lanes == 1 else Ramp(ZERO, const(1), lanes)
    func = PrimFunc("f", (*(b for b, _ in inputs), out), BufferStore(out, value, (where,)))
    result = np.zeros(lanes, out.dtype.numpy)
    evaluate(func, *(a for _, a in inputs), result)
    return result


def f32(value: float) -> PrimExpr:
    return const(value, "float32")


def i8(value: int) -> PrimExpr:
    return x.Cast(DType.of("int8"), const(value))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (x.Add(i8(100), i8(100)), -56),
        (x.FloorDiv(x.as_prim(-7), const(2)), -4),
        (x.FloorMod(x.as_prim(-7), const(2)), 1),
        (x.Div(x.as_prim(-7), const(2)), -3),
        (x.Cast(DType.of("int32"), f32(-3.7)), -3),
        (x.Cast(DType.of("uint8"), const(300)), 44),
        (Call(DType.of("int32"), "reinterpret", (f32(1.0),)), 0x3F800000),
        (x.Max(f32(np.nan), f32(1.0)), np.nan),
        (x.Min(f32(1.0), f32(np.nan)), np.nan),
        (intrinsic("fma", f32(1 + 2**-12), f32(1 - 2**-12), f32(-1.0)), -(2.0**-24)),
        (intrinsic("round", f32(2.5)), 2.0),
        (intrinsic("erf", f32(0.5)), np.float32(0.5204999)),
        (intrinsic("shift_right", x.const(-8, "int32"), 1), -4),
        (intrinsic("popcount", x.const(255, "int32")), 8),
        (intrinsic("isnan", f32(np.nan)), True),
        (x.Let(v := Var("v", x.float32), f32(3.0), x.Mul(v, v)), 9.0),
        (x.Select(x.LT(f32(1), f32(2)), f32(5), f32(6)), 5.0),
    ],
)
def test_scalars(value: PrimExpr, expected: float) -> None:
    np.testing.assert_array_equal(stored(value), np.array([expected], value.dtype.numpy))


def test_vectors() -> None:
    ramp = Ramp(const(3), const(2), 5)
    np.testing.assert_array_equal(stored(ramp), [3, 5, 7, 9, 11])
    np.testing.assert_array_equal(stored(x.Shuffle((ramp, ramp), (4, 5, 0))), [11, 3, 3])
    np.testing.assert_array_equal(stored(x.Broadcast(f32(2), 3)), [2, 2, 2])


def test_masked_load_reads_zero_and_may_point_outside() -> None:
    a = buffer("a", (4,))
    ramp = Ramp(const(2), const(1), 4)
    load = BufferLoad(a, (ramp,), x.LT(ramp, x.Broadcast(const(4), 4)))
    np.testing.assert_array_equal(stored(load, (a, np.arange(4, dtype=np.float32))), [2, 3, 0, 0])


def test_masked_store_leaves_the_rest() -> None:
    a = buffer("a", (4,))
    ramp = Ramp(ZERO, const(1), 4)
    odd = x.EQ(x.FloorMod(ramp, x.Broadcast(const(2), 4)), x.Broadcast(const(1), 4))
    data = np.zeros(4, np.float32)
    evaluate(PrimFunc("f", (a,), BufferStore(a, x.Broadcast(f32(1), 4), (ramp,), odd)), data)
    np.testing.assert_array_equal(data, [0, 1, 0, 1])


def test_if_then_else_does_not_touch_the_other_side() -> None:
    a = buffer("a", (4,))
    outside = x.if_then_else(x.LT(Var("n"), const(0)), a.load(100), 7.0)
    n = outside.args[0].a  # type: ignore[attr-defined]
    out = buffer("out", (1,))
    func = PrimFunc("f", (a, out, n), BufferStore(out, outside, (ZERO,)))
    result = np.zeros(1, np.float32)
    evaluate(func, np.zeros(4, np.float32), result, 5)
    assert result[0] == 7
    with pytest.raises(WellFormedError, match="out-of-bounds access of buffer a"):
        evaluate(func, np.zeros(4, np.float32), result, -5)


def test_fresh_memory_is_poisoned() -> None:
    temporary, out = buffer("t", (2,)), buffer("out", (1,))
    body = Allocate(temporary, BufferStore(out, temporary.load(1), (ZERO,)))
    result = np.zeros(1, np.float32)
    evaluate(PrimFunc("f", (out,), body), result)
    assert np.isnan(result[0])


def test_parallel_iterations_run_backwards() -> None:
    out = buffer("out", (1,), "int64")
    i = Var("i")
    body = For(i, ZERO, const(4), ForKind.PARALLEL, BufferStore(out, i, (ZERO,)))
    result = np.zeros(1, np.int64)
    evaluate(PrimFunc("f", (out,), body), result)
    assert result[0] == 0


def test_loads_are_not_shared_across_stores() -> None:
    a = buffer("a", (1,))
    bump = BufferStore(a, a.load(0) + 1.0, (ZERO,))
    data = np.zeros(1, np.float32)
    evaluate(PrimFunc("f", (a,), seq([bump, bump, bump])), data)
    assert data[0] == 3


def test_branches_and_deep_nests() -> None:
    """More loops than one Python function may hold."""
    out = buffer("out", (1,), "int64")
    loops = [Var(f"i{k}") for k in range(40)]
    odd = IfThenElse(x.EQ(loops[0] % 2, const(1)), BufferStore(out, out.load(0) + 1, (ZERO,)),
                     BufferStore(out, out.load(0) + loops[39] + 10, (ZERO,)))  # fmt: skip
    body = odd
    for k, var in reversed(list(enumerate(loops))):
        body = For(var, ZERO, const(2 if k in (0, 39) else 1), ForKind.SERIAL, body)  # type: ignore[assignment]
    result = np.zeros(1, np.int64)
    evaluate(PrimFunc("f", (out,), body), result)
    assert result[0] == 10 + 11 + 2


def test_narrow_types() -> None:
    a = buffer("a", (3,), "bfloat16")
    data = np.array([1, 2, 3], ml_dtypes.bfloat16)
    doubled = stored(x.Add(a.load(2), a.load(2)), (a, data))
    assert doubled.dtype == ml_dtypes.bfloat16
    assert doubled[0] == 6


def test_refusals() -> None:
    a = buffer("a", (4,))
    good = PrimFunc("f", (a,), BufferStore(a, f32(1), (const(4),)))
    with pytest.raises(WellFormedError, match="out-of-bounds") as caught:
        evaluate(good, np.zeros(4, np.float32))
    assert caught.value.got == "(4,)"
    with pytest.raises(InvalidInputError, match="takes 1 arguments"):
        evaluate(good)
    with pytest.raises(InvalidInputError, match="wrong dtype"):
        evaluate(good, np.zeros(4))
    with pytest.raises(InvalidInputError, match="wrong shape"):
        evaluate(good, np.zeros(5, np.float32))
    extern = Evaluate(call("int32", "call_extern", StringImm("abort")))
    with pytest.raises(LoweringError, match="call of an external function"):
        evaluate(PrimFunc("f", (), extern))


@pytest.mark.parametrize(("a", "b", "quotient", "rest", "truncated"), [
    (3, 0, 0, 0, 0), (-3, 0, 0, 0, 0), (-(2**63), -1, -(2**63), 0, -(2**63)), (-7, 2, -4, 1, -3),
])
def test_every_division_of_integers_is_defined(
        a: int, b: int, quotient: int, rest: int, truncated: int) -> None:
    m, n = Var("m"), Var("n")
    values = {m: np.int64(a), n: np.int64(b)}
    found = [evaluate_expr(kind(m, n), values) for kind in (x.FloorDiv, x.FloorMod, x.Div)]
    assert found == [quotient, rest, truncated]


def test_every_intrinsic_has_a_meaning_or_is_special() -> None:
    special = {"if_then_else", "reinterpret", "address_of", "prefetch", "prefetch_l2",
               "call_extern", "barrier", "tensor_map"}
    for name in INTRINSICS:
        assert (INTRINSICS.get(name).evaluate is None) == (
            name in special or name in DEVICE_FUNCTIONS)


@pytest.mark.parametrize(
    ("name", "operands", "message"),
    [
        ("exp", (const(1),), "exp is not defined for int64"),
        ("exp", (f32(1), f32(1)), "exp takes 1 operands"),
        ("shift_left", (f32(1), f32(1)), "shift_left is not defined for float32"),
    ],
)
def test_intrinsics_check_their_operands(
    name: str, operands: tuple[PrimExpr, ...], message: str
) -> None:
    with pytest.raises(LoweringError, match=message):
        intrinsic(name, *operands)
