"""Operators and intrinsics on every dtype, scalar and in vectors of any width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler, assert_same_bits
from tests.unit.codegen.programs import elementwise, numbers, output_like
from weft.codegen.llvm.build import emit_assembly
from weft.ir.dtype import DType
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, call
from weft.tir.intrinsics import INTRINSICS, intrinsic

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
NUMBERS = [*INTS, *FLOATS]
ALL = ["bool", *NUMBERS]
LANES = [1, 2, 3, 7, 8, 12, 16, 24, 40]

Fn = Callable[..., PrimExpr]


def run(
    compiler: Compiler, fn: Fn, sources: list[str], result: str, lanes: int, count: int = 9
) -> None:
    func = elementwise(fn, sources, result, count, lanes)
    inputs = [numbers(dtype, count * lanes, seed) for seed, dtype in enumerate(sources)]
    # Pairs of extreme values meet where the second input is turned.
    inputs = [np.roll(a, 3 * n) for n, a in enumerate(inputs)]
    compiler.check(func, inputs, [output_like(result, count * lanes)])


SUM_LIKE: dict[str, Fn] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "min": x.minimum,
    "max": x.maximum,
}


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("lanes", [1, 7, 16])
@pytest.mark.parametrize("name", SUM_LIKE)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_binary(compiler: Compiler, dtype: str, name: str, lanes: int) -> None:
    func = elementwise(SUM_LIKE[name], [dtype, dtype], dtype, 9, lanes)
    a, b = numbers(dtype, 9 * lanes), np.roll(numbers(dtype, 9 * lanes, 1), 3)
    [(found, expected)] = compiler.both(func, [a, b], [output_like(dtype, 9 * lanes)])
    if name in ("min", "max"):  # which zero is larger is not promised
        found, expected = found + found.dtype.type(0), expected + expected.dtype.type(0)
    assert_same_bits(found, expected)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64", "int64"])
def test_every_width(compiler: Compiler, dtype: str, lanes: int) -> None:
    run(compiler, lambda a, b: x.select(a < b, a - b, b) - a, [dtype, dtype], dtype, lanes, 2)


COMPARE: dict[str, type] = {
    "eq": x.EQ, "ne": x.NE, "lt": x.LT, "le": x.LE, "gt": x.GT, "ge": x.GE,
}  # fmt: skip


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_comparison(compiler: Compiler, dtype: str, name: str) -> None:
    for lanes in (1, 5):
        run(compiler, COMPARE[name], [dtype, dtype], "bool", lanes)


@pytest.mark.parametrize("lanes", [1, 3, 16])
def test_logic(compiler: Compiler, lanes: int) -> None:
    for fn in (x.And, x.Or, lambda a, b: x.not_(a) if b is None else x.And(x.not_(a), b)):
        run(compiler, fn, ["bool", "bool"], "bool", lanes)


@pytest.mark.parametrize("name", ["floordiv", "floormod", "div"])
@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_by_values(compiler: Compiler, dtype: str, name: str) -> None:
    node = {"floordiv": x.FloorDiv, "floormod": x.FloorMod, "div": x.Div}[name]
    for lanes in (1, 8):
        func = elementwise(node, [dtype, dtype], dtype, 9, lanes)
        a, b = numbers(dtype, 9 * lanes), np.roll(numbers(dtype, 9 * lanes, 1), 3)
        b[b == 0] = 1
        compiler.check(func, [a, b], [output_like(dtype, 9 * lanes)])


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("divisor", [1, 2, 3, 7, 8, 64, -1, -3])
@pytest.mark.parametrize("name", ["floordiv", "floormod", "div"])
@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint64"])
def test_integer_division_by_literals(
    compiler: Compiler, dtype: str, name: str, divisor: int
) -> None:
    if divisor < 0 and dtype.startswith("u"):
        pytest.skip("no such literal")
    node = {"floordiv": x.FloorDiv, "floormod": x.FloorMod, "div": x.Div}[name]
    literal = x.IntImm(divisor, DType.of(dtype))
    run(compiler, lambda a: node(a, literal), [dtype], dtype, 1, 30)
    run(compiler, lambda a: node(a, x.Broadcast(literal, 6)), [dtype], dtype, 6)


@pytest.mark.parametrize("divisor", [3, 7, 10, 641, 10**9 + 7, 2**32 - 1, 2**32 + 1, 2**40 + 15,
                                     2**62 + 1, 2**63 - 1, 2**63 + 3, 2**64 - 1])
@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_vectors_of_64_bits_by_literals(compiler: Compiler, dtype: str, divisor: int) -> None:
    """Beside multiples of the divisor, where a quotient that is off by one shows."""
    info = np.iinfo(dtype)
    divisor = min(divisor, info.max)
    near = [k * divisor + more for k in (-5, -2, -1, 0, 1, 2, 3, info.max // divisor)
            for more in (-1, 0, 1)]
    a = np.array([n for n in near if info.min <= n <= info.max], dtype)
    a = np.resize(np.concatenate([a, numbers(dtype, 30)]), 64)
    literal = x.Broadcast(x.IntImm(divisor, DType.of(dtype)), 8)
    for node in (x.FloorDiv, x.FloorMod):
        func = elementwise(lambda value, node=node: node(value, literal), [dtype], dtype, 8, 8)
        compiler.check(func, [a], [output_like(dtype, 64)])


def test_vectors_of_64_bits_by_values(compiler: Compiler) -> None:
    """Multiples of divisors of all sizes and what is beside them: quotients off by one show."""
    rng = np.random.default_rng(0)
    b = rng.integers(-2**63, 2**63 - 1, 4096) >> rng.integers(0, 63, 4096)
    b[b == 0] = 3
    with np.errstate(over="ignore"):
        a = b * (rng.integers(-2**40, 2**40, 4096) >> rng.integers(0, 41, 4096))
        a += rng.integers(-1, 2, 4096)
    a[:4], b[:4] = (-2**63, -2**63, 2**63 - 1, 1), (1, -2**63, -2**63, 2**63 - 1)
    for node in (x.FloorDiv, x.FloorMod):
        func = elementwise(node, ["int64", "int64"], "int64", 512, 8)
        compiler.check(func, [a, b], [output_like("int64", 4096)])


@pytest.mark.parametrize("node", [x.FloorDiv, x.FloorMod, x.Div])
@pytest.mark.parametrize("dtype", INTS)
def test_division_never_traps(compiler: Compiler, dtype: str, node: type) -> None:
    """By zero it gives 0; the smallest integer by -1 wraps."""
    kind = DType.of(dtype).numpy
    info = np.iinfo(kind)
    a = np.array([5, info.min, info.max, info.min, 0, 7], kind)
    b = np.array([0, 0, 0, -1 if info.min else 1, 0, -1 if info.min else 2]).astype(kind)
    for lanes in (1, 6):
        func = elementwise(node, [dtype, dtype], dtype, 6 // lanes, lanes)
        out = output_like(dtype, 6)
        compiler.compile(func)(a, b, out)
        assert not out[b == 0].any()
        if info.min:
            assert out[3] == (0 if node is x.FloorMod else info.min)
            assert out[5] == (0 if node is x.FloorMod else -7)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_floor_division(compiler: Compiler, dtype: str) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-40, 40, 32).astype(DType.of(dtype).numpy)
    b = rng.choice([0.5, 1, 3, -2, -0.75, 7], 32).astype(DType.of(dtype).numpy)
    for node in (x.FloorDiv, x.FloorMod):
        for lanes in (1, 8):
            func = elementwise(node, [dtype, dtype], dtype, 32 // lanes, lanes)
            [(found, expected)] = compiler.both(func, [a, b], [output_like(dtype, 32)])
            np.testing.assert_array_equal(found.astype(float), expected.astype(float))


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("source", ALL)
def test_cast(compiler: Compiler, source: str, target: str) -> None:
    count = 16
    a = numbers(source, count)
    to_int = target not in FLOATS and target != "bool"
    if source in FLOATS and to_int:
        # Out of range is any value of the type; what is in range truncates.
        info = np.iinfo(DType.of(target).numpy)
        wide = a.astype(np.float64)
        a[~((wide > max(info.min, -(2.0**62)) - 1) & (wide < min(info.max, 2.0**62)))] = 3
    for lanes in (1, 4, 16):
        func = elementwise(lambda v: v.astype(target), [source], target, count // lanes, lanes)
        compiler.check(func, [a], [output_like(target, count)])


@pytest.mark.parametrize("target", INTS)
@pytest.mark.parametrize("source", FLOATS)
def test_cast_of_nan_and_infinity_is_harmless(compiler: Compiler, source: str, target: str) -> None:
    a = np.array([np.nan, np.inf, -np.inf, 3.7, -0.0]).astype(DType.of(source).numpy)
    out = output_like(target, 5)
    compiler.compile(elementwise(lambda v: v.astype(target), [source], target, 5))(a, out)
    assert out[3] == 3
    assert out[4] == 0


UNARY = {
    name: record
    for name, record in ((n, INTRINSICS.get(n)) for n in INTRINSICS)
    if record.arity == 1 and record.kind in ("float", "int", "number") and not record.is_decomposed
}


@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_intrinsic(compiler: Compiler, name: str, lanes: int) -> None:
    kind = UNARY[name].kind
    dtypes = {"float": FLOATS, "int": INTS, "number": NUMBERS}[kind]
    for dtype in dtypes:
        result = "bool" if name == "isnan" else dtype
        run(compiler, lambda a: intrinsic(name, a), [dtype], result, lanes)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize("dtype", INTS)
def test_bitwise(compiler: Compiler, dtype: str, name: str) -> None:
    for lanes in (1, 12):
        run(compiler, lambda a, b: intrinsic(name, a, b), [dtype, dtype], dtype, lanes)


@pytest.mark.parametrize("name", ["shift_left", "shift_right"])
@pytest.mark.parametrize("dtype", INTS)
def test_shift(compiler: Compiler, dtype: str, name: str) -> None:
    bits = DType.of(dtype).bits
    count = 24
    a = numbers(dtype, count)
    b = (np.arange(count) % bits).astype(a.dtype)
    for lanes in (1, 12):
        func = elementwise(lambda p, q: intrinsic(name, p, q), [dtype] * 2, dtype,
                           count // lanes, lanes)  # fmt: skip
        compiler.check(func, [a, b], [output_like(dtype, count)])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_rounds_once(compiler: Compiler, dtype: str) -> None:
    eps = np.finfo(dtype).eps
    a = np.array([1 + eps, 1 - eps, 3, np.nan], dtype)
    b = np.array([1 + eps, 1 + eps, np.inf, 1], dtype)
    c = np.array([-1 - 2 * eps, -1, -np.inf, 1], dtype)
    func = elementwise(lambda p, q, r: intrinsic("fma", p, q, r), [dtype] * 3, dtype, 4)
    [found] = compiler.check(func, [a, b, c], [output_like(dtype, 4)])
    assert found[0] == eps * eps
    if compiler.target.has("fma"):  # a product and a sum contract in the same way
        plain = elementwise(lambda p, q, r: p * q + r, [dtype] * 3, dtype, 1, 4)
        out = output_like(dtype, 4)
        compiler.compile(plain)(a, b, c, out)
        np.testing.assert_array_equal(out, found)
        minus = elementwise(lambda p, q, r: p * q - r, [dtype] * 3, dtype, 4)
        compiler.compile(minus)(a, b, -c, out)
        np.testing.assert_array_equal(out, found)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_fma_of_narrow_floats(compiler: Compiler, dtype: str) -> None:
    kind = DType.of(dtype).numpy
    a, b, c = (np.array(v).astype(kind) for v in ([1.5, -2, 3], [4, 0.25, 7], [1, 1, -21]))
    for lanes in (1, 3):
        func = elementwise(lambda p, q, r: intrinsic("fma", p, q, r), [dtype] * 3, dtype,
                           3 // lanes, lanes)  # fmt: skip
        compiler.check(func, [a, b, c], [output_like(dtype, 3)])


@pytest.mark.parametrize(("source", "target"), [
    ("float32", "int32"), ("int32", "float32"), ("float64", "uint64"), ("float16", "int16"),
    ("bfloat16", "uint16"), ("int16", "bfloat16"), ("uint8", "int8"),
])  # fmt: skip
@pytest.mark.parametrize("lanes", [1, 8])
def test_reinterpret(compiler: Compiler, source: str, target: str, lanes: int) -> None:
    result = DType.of(target).vector(lanes)
    func = elementwise(lambda a: call(result, "reinterpret", a), [source], target, 2, lanes)
    compiler.check(func, [numbers(source, 2 * lanes)], [output_like(target, 2 * lanes)])


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("fn", [x.minimum, x.maximum])
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_passes_through_minimum_and_maximum(
    compiler: Compiler, dtype: str, fn: Fn, lanes: int
) -> None:
    """In both operands, and beside a literal (relu, clip) as well."""
    kind = DType.of(dtype).numpy
    a = np.array([np.nan, 1, np.nan, -2, np.inf, -np.inf, 0, 5]).astype(kind)
    b = np.array([1, np.nan, np.nan, 3, -np.inf, np.inf, -1, 5]).astype(kind)
    zero: PrimExpr = x.FloatImm(0.0, DType.of(dtype))
    zero = zero if lanes == 1 else x.Broadcast(zero, lanes)
    pair = elementwise(fn, [dtype, dtype], dtype, 8 // lanes, lanes)
    compiler.check(pair, [a, b], [output_like(dtype, 8)])
    for beside in (lambda v: fn(v, zero), lambda v: fn(zero, v)):
        func = elementwise(beside, [dtype], dtype, 8 // lanes, lanes)
        compiler.check(func, [a], [output_like(dtype, 8)])


def test_relu_is_one_instruction(compiler: Compiler) -> None:
    if not compiler.target.has("avx512f"):
        pytest.skip("another instruction set")
    zero = x.Broadcast(x.FloatImm(0.0, DType.of("float32")), 16)
    func = elementwise(lambda a: x.maximum(a, zero), ["float32"], "float32", 4, 16)
    text = emit_assembly(func, compiler.target)
    assert text.count("vmaxps") == 4 or text.count("vmaxps") == 1
    assert "vcmp" not in text
    assert "vblend" not in text


def test_select_and_cast_chain(compiler: Compiler) -> None:
    def fn(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        return x.select(a < b, (a + b).astype("int32"), b.astype("int32")).astype("float32")

    for lanes in (1, 9):
        run(compiler, fn, ["int16", "int16"], "float32", lanes)
