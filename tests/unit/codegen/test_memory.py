"""Loads, stores, masks, registers and addresses in machine code."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler
from tests.unit.codegen.programs import index_var, lanes_at, loop, numbers, output_like
from weft.codegen.llvm.build import emit_llvm, emit_optimized_llvm
from weft.ir.dtype import DType
from weft.support.errors import CodegenError, InternalError
from weft.tir import expr as x
from weft.tir.buffer import Buffer, buffer
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, Shuffle, call, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import Allocate, BufferStore, Evaluate, ForKind, LetStmt, Stmt, seq

DTYPES = ["bool", "int8", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
LANES = [2, 3, 7, 8, 12, 16, 24, 40]


def ramp(base: PrimExpr | int, stride: int, lanes: int) -> PrimExpr:
    return Ramp(x.as_prim(base), const(stride), lanes)


def upto(limit: int, lanes: int) -> PrimExpr:
    """Lanes below ``limit``."""
    return x.LT(ramp(0, 1, lanes), Broadcast(const(limit), lanes))


def copy_program(dtype: str, size: int, where: PrimExpr, value: PrimExpr, source: Buffer,
                 mask: PrimExpr | None = None) -> PrimFunc:  # fmt: skip
    out = buffer("out", [size], dtype)
    return PrimFunc("f", (source, out), BufferStore(out, value, (where,), mask))


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 5, -1, 0])
def test_strided_loads_and_stores(compiler: Compiler, stride: int, lanes: int) -> None:
    size = lanes * max(1, abs(stride)) + 2
    first = 1 if stride >= 0 else size - 1
    for dtype in DTYPES:
        a = buffer("a", [size], dtype)
        load = a.load(ramp(first, stride, lanes))
        func = copy_program(dtype, lanes, ramp(0, 1, lanes), load, a)
        compiler.check(func, [numbers(dtype, size)], [output_like(dtype, lanes)])
        if stride:
            b = buffer("b", [lanes], dtype)
            func = copy_program(dtype, size, ramp(first, stride, lanes), b.load(ramp(0, 1, lanes)),
                                b)  # fmt: skip
            compiler.check(func, [numbers(dtype, lanes)], [output_like(dtype, size)])


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_loads_read_nothing_past_their_last_element(compiler: Compiler, stride: int) -> None:
    """The buffer ends where a page without access begins."""
    page, lanes = mmap.PAGESIZE, 16
    area = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert protect(start + page, page, 0) == 0
    size = (lanes - 1) * stride + 1
    memory = np.frombuffer(area, np.float32, size, page - 4 * size)
    memory[:] = np.arange(size)
    a = buffer("a", [size])
    func = copy_program("float32", lanes, ramp(0, 1, lanes), a.load(ramp(0, stride, lanes)), a)
    [found] = compiler.check(func, [memory], [output_like("float32", lanes)])
    np.testing.assert_array_equal(found, np.arange(0, size, stride))
    masked = copy_program("float32", 32, ramp(0, 1, 32),
                          BufferLoad(a, (ramp(0, 1, 32),), upto(size, 32)), a)  # fmt: skip
    compiler.check(masked, [memory], [output_like("float32", 32)])


@pytest.mark.parametrize("lanes", LANES)
def test_gather_and_scatter(compiler: Compiler, lanes: int) -> None:
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        a, i = buffer("a", [50], dtype), buffer("i", [lanes], "int64")
        out = buffer("out", [60], dtype)
        picks = i.load(ramp(0, 1, lanes))
        body = BufferStore(out, a.load(picks), (picks + Broadcast(const(5), lanes),))
        where = rng.permutation(50)[:lanes].astype(np.int64)
        compiler.check(PrimFunc("f", (a, i, out), body), [numbers(dtype, 50), where],
                       [output_like(dtype, 60)])  # fmt: skip


def test_a_gather_adds_what_lanes_share_to_the_pointer(compiler: Compiler) -> None:
    a, i = buffer("a", [50]), buffer("i", [17], "int32")
    out, last = buffer("out", [16]), i.load(const(16)).astype("int64")
    index = Broadcast(last, 16) + i.load(ramp(0, 1, 16)).astype("int64x16")
    func = PrimFunc("f", (a, i, out), BufferStore(out, a.load(index), (ramp(0, 1, 16),)))
    where = np.append(np.random.default_rng(0).permutation(40)[:16], 9).astype(np.int32)
    compiler.check(func, [numbers("float32", 50), where], [output_like("float32", 16)])
    assert "add <16 x i64>" not in emit_llvm(func, compiler.target).replace("nsw ", "")


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("stride", [2, 3, 4])
def test_strided_loads_of_some_lanes(compiler: Compiler, stride: int, lanes: int) -> None:
    """Border lanes are off at either end: neither is their memory there."""
    for first, stop in ((0, 5), (1, lanes), (lanes - 1, lanes), (2, lanes - 3)):
        mask = x.And(x.GE(ramp(0, 1, lanes), Broadcast(const(first), lanes)), upto(stop, lanes))
        a = buffer("a", [(stop - 1 - first) * stride + 1])
        index = ramp(-first * stride, stride, lanes)
        func = copy_program("float32", lanes, ramp(0, 1, lanes), BufferLoad(a, (index,), mask), a)
        [found] = compiler.check(func, [numbers("float32", (stop - 1 - first) * stride + 1)],
                                 [output_like("float32", lanes)])
        assert not found[:first].any()
        assert not found[stop:].any()


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("keep", [0, 1, 5, 7])
@pytest.mark.parametrize("lanes", [7, 8, 24])
def test_masked_accesses(compiler: Compiler, lanes: int, keep: int) -> None:
    """Lanes outside a mask are zero when loaded and stay what they were when stored."""
    mask = upto(keep, lanes)
    for dtype in DTYPES:
        for index in (ramp(0, 1, lanes), ramp(0, 3, lanes)):
            a = buffer("a", [keep * 3 + 1], dtype)
            func = copy_program(dtype, lanes, ramp(0, 1, lanes), BufferLoad(a, (index,), mask), a)
            compiler.check(func, [numbers(dtype, keep * 3 + 1)], [numbers(dtype, lanes, 5)])
            b = buffer("b", [lanes], dtype)
            func = copy_program(dtype, keep * 3 + 1, index, b.load(ramp(0, 1, lanes)), b, mask)
            compiler.check(func, [numbers(dtype, lanes)], [numbers(dtype, keep * 3 + 1, 5)])


def test_masked_broadcast_load(compiler: Compiler) -> None:
    a = buffer("a", [4])
    load = BufferLoad(a, (Broadcast(const(2), 8),), upto(5, 8))
    func = copy_program("float32", 8, ramp(0, 1, 8), load, a)
    [found] = compiler.check(func, [np.arange(4, dtype=np.float32)], [output_like("float32", 8)])
    assert found.tolist() == [2.0] * 5 + [0.0] * 3


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_scalar_accesses(compiler: Compiler, dtype: str) -> None:
    a, out, i = buffer("a", [5], dtype), buffer("out", [8], dtype), index_var()
    load = BufferLoad(a, (i,), i < 5)
    body = loop(i, 9, BufferStore(out, load, (i,), i < 8))
    compiler.check(PrimFunc("f", (a, out), body), [numbers(dtype, 5)], [numbers(dtype, 8, 3)])


def test_scalar_mask_of_a_vector(compiler: Compiler) -> None:
    a, out, i = buffer("a", [8]), buffer("out", [16]), index_var()
    store = BufferStore(out, a.load(ramp(0, 1, 8)), (ramp(i * 8, 1, 8),), x.EQ(i, const(1)))
    [found] = compiler.check(PrimFunc("f", (a, out), loop(i, 2, store)),
                             [np.ones(8, np.float32)], [output_like("float32", 16)])  # fmt: skip
    assert found.tolist() == [0.0] * 8 + [1.0] * 8


def test_lazy_choice_guards_its_load(compiler: Compiler) -> None:
    """The index is out of bounds wherever the condition fails, and far so."""
    a, out, i = buffer("a", [4]), buffer("out", [8]), index_var()
    far = i * (1 << 40)
    value = x.if_then_else(x.LT(i, const(1)), a.load(far), x.FloatImm(7.0, DType.of("float32")))
    func = PrimFunc("f", (a, out), loop(i, 8, BufferStore(out, value + value * value, (i,))))
    [found] = compiler.check(func, [np.full(4, 3, np.float32)], [output_like("float32", 8)])
    assert found.tolist() == [12.0] + [56.0] * 7


def test_nested_lazy_choices_share_nothing_across_branches(compiler: Compiler) -> None:
    a, out, i = buffer("a", [9]), buffer("out", [9]), index_var()
    heavy = a.load(i) * a.load(i)
    inner = x.if_then_else(x.LT(i, const(3)), heavy, heavy + heavy)
    outer = x.if_then_else(x.GT(i, const(1)), inner, a.load(const(0)))
    func = PrimFunc("f", (a, out), loop(i, 9, BufferStore(out, outer + heavy, (i,))))
    compiler.check(func, [np.arange(9, dtype=np.float32)], [output_like("float32", 9)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_registers_of_mixed_widths(compiler: Compiler, dtype: str) -> None:
    """Each span of a local buffer is a register slot of its width; nothing stays on the stack."""
    a, out = buffer("a", [29], dtype), buffer("out", [29], dtype)
    r = buffer("r", [29], dtype, scope="local")
    spans = [(0, 16), (16, 8), (24, 4), (28, 1)]
    fill = [BufferStore(r, a.load(lanes_at(s, n)), (lanes_at(s, n),)) for s, n in spans]
    spill = [BufferStore(out, r.load(lanes_at(s, n)), (lanes_at(s, n),)) for s, n in spans]
    func = PrimFunc("f", (a, out), Allocate(r, seq([*fill, *spill])))
    compiler.check(func, [numbers(dtype, 29)], [output_like(dtype, 29)])
    assert "alloca" in emit_llvm(func, compiler.target)
    assert "alloca" not in emit_optimized_llvm(func, compiler.target)


def test_overlapping_register_accesses_are_an_array(compiler: Compiler) -> None:
    a, out = buffer("a", [8]), buffer("out", [8])
    r = buffer("r", [8], scope="local")
    body = seq([
        BufferStore(r, a.load(ramp(0, 1, 8)), (ramp(0, 1, 8),)),
        BufferStore(r, x.FloatImm(9.0, DType.of("float32")), (const(3),)),
        BufferStore(out, r.load(ramp(0, 1, 4)), (ramp(0, 1, 4),)),
        BufferStore(out, r.load(ramp(4, 1, 4)), (ramp(4, 1, 4),)),
    ])  # fmt: skip
    func = PrimFunc("f", (a, out), Allocate(r, body))
    [found] = compiler.check(func, [np.arange(8, dtype=np.float32)], [output_like("float32", 8)])
    assert found.tolist() == [0, 1, 2, 9, 4, 5, 6, 7]


def test_masked_register_accesses(compiler: Compiler) -> None:
    a, out = buffer("a", [8]), buffer("out", [8])
    r = buffer("r", [8], scope="local")
    whole = ramp(0, 1, 8)
    body = seq([
        BufferStore(r, Broadcast(x.FloatImm(1.0, DType.of("float32")), 8), (whole,)),
        BufferStore(r, a.load(whole), (whole,), upto(5, 8)),
        BufferStore(out, BufferLoad(r, (whole,), upto(7, 8)), (whole,)),
    ])  # fmt: skip
    [found] = compiler.check(PrimFunc("f", (a, out), Allocate(r, body)),
                             [np.full(8, 4, np.float32)], [output_like("float32", 8)])  # fmt: skip
    assert found.tolist() == [4.0] * 5 + [1.0] * 2 + [0.0]


def test_accumulators_stay_in_registers_across_a_loop(compiler: Compiler) -> None:
    a, b, out, k = buffer("a", [30]), buffer("b", [30 * 24]), buffer("out", [24]), index_var("k")
    r = buffer("r", [24], scope="local")
    zero = x.FloatImm(0.0, DType.of("float32"))
    spans = [(0, 16), (16, 8)]
    body = seq([
        *(BufferStore(r, Broadcast(zero, n), (ramp(s, 1, n),)) for s, n in spans),
        loop(k, 30, seq([
            BufferStore(r, r.load(ramp(s, 1, n))
                        + Broadcast(a.load(k), n) * b.load(ramp(k * 24 + s, 1, n)),
                        (ramp(s, 1, n),))
            for s, n in spans
        ])),
        *(BufferStore(out, r.load(ramp(s, 1, n)), (ramp(s, 1, n),)) for s, n in spans),
    ])  # fmt: skip
    func = PrimFunc("f", (a, b, out), Allocate(r, body))
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-9, 9, n).astype(np.float32) for n in (30, 720)]
    compiler.check(func, inputs, [output_like("float32", 24)])
    text = emit_optimized_llvm(func, compiler.target)
    assert text.count("phi <16 x float>") == 1
    assert text.count("phi <8 x float>") == 1
    assert text.count("store <") == 2


def test_shuffles(compiler: Compiler) -> None:
    a, out = buffer("a", [8], "int32"), buffer("out", [9], "int32")
    low, high = a.load(ramp(0, 1, 4)), a.load(ramp(4, 1, 4))
    body = seq([
        BufferStore(out, Shuffle((low, high), (7, 0, 4, 3, 3, 1)), (ramp(0, 1, 6),)),
        BufferStore(out, Shuffle((low,), (2,)), (const(6),)),
        BufferStore(out, Shuffle((low, high), (6,)), (const(7),)),
    ])  # fmt: skip
    [found] = compiler.check(PrimFunc("f", (a, out), body), [np.arange(8, dtype=np.int32)],
                             [output_like("int32", 9)])  # fmt: skip
    assert found.tolist() == [7, 0, 4, 3, 3, 1, 2, 6, 0]


def test_ramp_with_a_stride_known_only_at_run_time(compiler: Compiler) -> None:
    n, a, out = index_var("n"), buffer("a", [40]), buffer("out", [8])
    body = BufferStore(out, a.load(Ramp(const(2), n, 8)), (ramp(0, 1, 8),))
    func = PrimFunc("f", (n, a, out), body)
    for stride in (0, 1, 4):
        compiler.check(func, [stride, np.arange(40, dtype=np.float32)], [output_like("float32", 8)])


def test_loads_are_not_reused_after_a_store(compiler: Compiler) -> None:
    out = buffer("out", [2], "int32")
    one = x.IntImm(1, DType.of("int32"))
    step = BufferStore(out, out.load(const(0)) + one, (const(0),))
    body = seq([step, step, BufferStore(out, out.load(const(0)) + out.load(const(0)), (const(1),))])
    [found] = compiler.check(PrimFunc("f", (out,), body), [], [output_like("int32", 2)])
    assert found.tolist() == [2, 4]


def test_lets(compiler: Compiler) -> None:
    a, out, i = buffer("a", [4]), buffer("out", [8]), index_var()
    u, v, w = (x.Var(name, DType.of("float32")) for name in "uvw")
    value = x.Let(w, x.Let(u, v, u + u), w + x.Let(u, v, u * w))
    body: Stmt = LetStmt(v, a.load(i), BufferStore(out, value + value, (i + 4,)))
    func = PrimFunc("f", (a, out), loop(i, 4, body))
    [found] = compiler.check(func, [np.arange(4, dtype=np.float32)], [output_like("float32", 8)])
    assert found[4:].tolist() == [0, 8, 24, 48]


def test_a_variable_is_not_bound_inside_its_own_scope(compiler: Compiler) -> None:
    out, v = buffer("out", [1]), x.Var("v", DType.of("float32"))
    one = x.FloatImm(1.0, DType.of("float32"))
    value = x.Let(v, one, v + x.Let(v, one + one, v * v))
    with pytest.raises(InternalError, match="v is bound inside"):
        compiler.compile(PrimFunc("f", (out,), BufferStore(out, value, (const(0),))))


def test_prefetch_is_harmless_anywhere(compiler: Compiler) -> None:
    a, out = buffer("a", [4]), buffer("out", [4])
    hint = Evaluate(call("handle", "prefetch", a.load(const(1 << 40))))
    body = seq([hint, BufferStore(out, a.load(ramp(0, 1, 4)), (ramp(0, 1, 4),))])
    compiler.check(PrimFunc("f", (a, out), body), [np.ones(4, np.float32)],
                   [output_like("float32", 4)])  # fmt: skip


def test_address_of_is_passed_to_a_call(compiler: Compiler) -> None:
    """memcpy from the C library: an address per buffer, and the copy is seen afterwards."""
    a, out = buffer("a", [8]), buffer("out", [8])
    addresses = [call("handle", "address_of", b.load(const(2))) for b in (out, a)]
    copy = Evaluate(call("handle", "call_extern", x.StringImm("memcpy"), *addresses, const(16)))
    body = seq([
        BufferStore(out, x.FloatImm(5.0, DType.of("float32")), (const(2),)),
        copy,
        BufferStore(out, out.load(const(2)) + out.load(const(3)), (const(0),)),
    ])  # fmt: skip
    func = PrimFunc("f", (a, out), body)
    found = output_like("float32", 8)
    compiler.compile(func)(np.arange(8, dtype=np.float32), found)
    assert found.tolist() == [5, 0, 2, 3, 4, 5, 0, 0]


def test_unflattened_buffers_are_refused(compiler: Compiler) -> None:
    a, out = buffer("a", [2, 2]), buffer("out", [2])
    func = PrimFunc("f", (a, out), BufferStore(out, a.load(0, 1), (const(0),)))
    with pytest.raises(CodegenError, match="a is not flattened"):
        compiler.compile(func)


def test_registers_have_no_address(compiler: Compiler) -> None:
    r = buffer("r", [2], scope="local")
    element = call("handle", "address_of", r.load(const(0)))
    body = Allocate(r, Evaluate(call("handle", "call_extern", x.StringImm("bzero"), element,
                                     const(4))))  # fmt: skip
    with pytest.raises(CodegenError, match="which is held in registers"):
        compiler.compile(PrimFunc("f", (), body))


def test_threads_cannot_share_registers(compiler: Compiler) -> None:
    r, out, i = buffer("r", [1], scope="local"), buffer("out", [4]), index_var()
    fill = BufferStore(r, x.FloatImm(1.0, DType.of("float32")), (const(0),))
    each = loop(i, 4, BufferStore(out, r.load(const(0)), (i,)), kind=ForKind.PARALLEL)
    with pytest.raises(CodegenError, match="which is held in registers"):
        compiler.compile(PrimFunc("f", (out,), Allocate(r, seq([fill, each]))))
