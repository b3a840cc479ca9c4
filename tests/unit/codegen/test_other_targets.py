"""Code for CPUs with fewer instruction sets runs here too; foreign code at least compiles."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiled, assert_same_bits
from tests.unit.codegen.programs import elementwise, index_var, loop, numbers, output_like
from weft.codegen.llvm.build import build_object, emit_assembly
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.ir.dtype import DType
from weft.runtime.devices.cpu.elf.object_file import read_symbols
from weft.runtime.devices.cpu.host import host_features, machine
from weft.support.errors import CodegenError
from weft.target import Target
from weft.target.cpus import CPU_FEATURES, with_implied
from weft.tir import expr as x
from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate
from weft.tir.expr import Call, PrimExpr
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import intrinsic
from weft.tir.stmt import BufferStore, For, ForKind
from weft.tir.transform.pipeline import lower_prim_func

X86 = ["x86-64", "x86-64-v2", "haswell", "skylake-avx512"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]


@pytest.fixture(scope="module", params=X86)
def older(request: pytest.FixtureRequest) -> Target:
    cpu: str = request.param
    if machine() != "x86_64" or not with_implied(frozenset(CPU_FEATURES[cpu])) <= host_features():
        pytest.skip("this machine cannot run it")
    return Target.of(f"llvm -mcpu={cpu}")


@pytest.fixture(scope="module")
def support(older: Target) -> bytes:
    return build_runtime_support(older).object


def compare(func: PrimFunc, target: Target, support: bytes, *inputs: np.ndarray) -> np.ndarray:
    last = func.params[-1]
    assert isinstance(last, Buffer)
    size = (last.static_bytes or 0) // last.dtype.itemsize
    found, expected = (output_like(str(last.dtype), size) for _ in range(2))
    Compiled(func, target, support)(*inputs, found)
    evaluate(func, *inputs, expected)
    assert_same_bits(found, expected, f"{target}\n{func}")
    return found


EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_every_float16_widens(older: Target, support: bytes, lanes: int) -> None:
    size = EVERY_HALF.size // lanes
    func = elementwise(lambda a: a.astype("float32"), ["float16"], "float32", size, lanes)
    wide = output_like("float32", EVERY_HALF.size)
    Compiled(func, older, support)(EVERY_HALF, wide)
    np.testing.assert_array_equal(wide, EVERY_HALF.astype(np.float32))


def near_halves() -> np.ndarray:
    """All non-negative float16 values, the points half way between, their neighbours, others."""
    exact = np.sort(EVERY_HALF[:0x7C00].astype(np.float64))
    middle = (exact[:-1] + exact[1:]) / 2
    rng = np.random.default_rng(0)
    special = [65519.9, 65520.0, 1e30, np.nan, np.inf]
    parts = [exact, middle, np.nextafter(middle, 0), np.nextafter(middle, 1e9),
             np.nextafter(middle.astype(np.float32), np.float32(0)), special]  # fmt: skip
    data = np.concatenate([*parts, rng.standard_normal(4096) * 1e4])
    return np.concatenate([data, -data])


@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_narrowing_to_float16_rounds_once(
    older: Target, support: bytes, source: str, lanes: int
) -> None:
    with np.errstate(over="ignore"):
        data = near_halves().astype(source)
        data = data[: data.size // lanes * lanes]
        expected = data.astype(np.float16)
    size = data.size // lanes
    func = elementwise(lambda a: a.astype("float16"), [source], "float16", size, lanes)
    found = output_like("float16", data.size)
    Compiled(func, older, support)(data, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operations(older: Target, support: bytes, dtype: str) -> None:
    def fn(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        parts = [intrinsic(name, a) for name in ("floor", "ceil", "round", "trunc", "abs")]
        total = intrinsic("sqrt", intrinsic("abs", b))
        for part in parts:
            total = x.select(part < b, part - b, total)
        return total

    for lanes in (1, 3, 16):
        func = elementwise(fn, [dtype, dtype], dtype, 8, lanes)
        compare(func, older, support, numbers(dtype, 8 * lanes), numbers(dtype, 8 * lanes, 1))


def test_transcendentals(older: Target, support: bytes) -> None:
    def fn(a: PrimExpr) -> PrimExpr:
        total = a
        for name in ("exp", "log", "tanh", "erf", "sigmoid", "sin", "rsqrt"):
            total = total + Call(a.dtype, name, (intrinsic("abs", a),))
        return total

    func = elementwise(fn, ["float32"], "float32", 4, 8)
    data = np.linspace(0.1, 3, 32).astype(np.float32)
    found, expected = output_like("float32", 32), output_like("float32", 32)
    Compiled(lower_prim_func(func), older, support)(data, found)
    evaluate(func, data, expected)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def looked_up(dtype: str, lanes: int, entries: int) -> PrimFunc:
    """Entry ``a[i] mod entries`` of a table of odd numbers."""
    result = DType.of(dtype)
    constants = [x.const(2 * n + 1 - entries, result) for n in range(entries)]
    return elementwise(lambda a: x.call(result.vector(lanes), "table_lookup", a, *constants),
                       [f"int{result.bits}"], dtype, 3, lanes)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("entries", [4, 16, 64])
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64"])
def test_lookup(older: Target, support: bytes, dtype: str, entries: int) -> None:
    for lanes in (1, 3, 16, 40):
        where = numbers(f"int{DType.of(dtype).bits}", 3 * lanes)
        compare(looked_up(dtype, lanes, entries), older, support, where)


@pytest.mark.parametrize(("text", "instruction"), [
    ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic", "tbl"),
    ("llvm -mcpu=haswell", "vperm"),
    ("llvm -mcpu=skylake-avx512", "vperm"),
])  # fmt: skip
def test_a_lookup_is_a_permutation(text: str, instruction: str) -> None:
    assembly = emit_assembly(looked_up("float32", 16, 16), Target.of(text))
    assert instruction in assembly


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lookup_of_neighbours(older: Target, support: bytes, dtype: str) -> None:
    """From any entry on, and beyond the last one."""
    index, count = f"int{DType.of(dtype).bits}", 7
    starts, out = buffer("starts", [count], index), buffer("out", [count * 8], dtype)
    i = x.Var("i", x.int64)
    entries = [x.const(n * n, out.dtype) for n in range(16)]
    run = x.Ramp(starts.load(i), x.const(1, starts.dtype), 8)
    body = BufferStore(out, x.call(out.dtype.vector(8), "table_lookup", run, *entries),
                       (x.Ramp(i * 8, x.const(1), 8),))
    func = PrimFunc("f", (starts, out), For(i, x.const(0), x.const(count), ForKind.SERIAL, body))
    compare(func, older, support, np.array([0, 3, 8, 9, 15, 16, -2], index))


def test_only_constants_are_looked_up(older: Target) -> None:
    func = elementwise(lambda a: x.call(a.dtype, "table_lookup", a, a, a), ["int32"], "int32", 2)
    with pytest.raises(CodegenError, match="not a constant"):
        build_object(func, older)


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf", "sigmoid"])
def test_functions_need_no_library_where_sums_of_products_round_twice(name: str) -> None:
    func = elementwise(lambda a: Call(a.dtype, name, (a,)), ["float32"], "float32", 4, 4)
    code = build_object(lower_prim_func(func), Target.of("llvm -mcpu=x86-64"))
    assert not [s.name for s in read_symbols(code.object) if s.name.startswith("fma")]


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64"])
def test_masks_and_gathers(older: Target, support: bytes, dtype: str) -> None:
    a, i, out = buffer("a", [20], dtype), buffer("i", [8], "int64"), buffer("out", [8], dtype)
    lanes = x.Ramp(x.const(0), x.const(1), 8)
    mask = x.LT(lanes, x.Broadcast(x.const(6), 8))
    picked = x.BufferLoad(a, (i.load(lanes),), mask)
    func = PrimFunc("f", (a, i, out), BufferStore(out, picked, (lanes,), mask))
    where = np.array([3, 19, 0, 7, 7, 1, 999_999, -5], np.int64)
    compare(func, older, support, numbers(dtype, 20), where)


@pytest.mark.parametrize("text", [
    "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic",
    "llvm -mcpu=haswell",
    "llvm -mcpu=znver5",
])  # fmt: skip
def test_objects_for_other_machines(text: str) -> None:
    target = Target.of(text)
    i, a, out = index_var(), buffer("a", [64]), buffer("out", [64], "float16")
    lanes = x.Ramp(i * 16, x.const(1), 16)
    body = loop(i, 4, BufferStore(out, (a.load(lanes) * a.load(lanes)).astype("float16"), (lanes,)),
                kind=ForKind.PARALLEL)  # fmt: skip
    code = build_object(PrimFunc("kernel", (a, out), body), target)
    table = {s.name: s.is_defined for s in read_symbols(code.object)}
    assert table["kernel"]
    assert not table["weft_parallel_launch"]
    assert build_runtime_support(target).object
