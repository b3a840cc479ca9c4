"""Loops, branches, threads, workspace and symbolic sizes in machine code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler
from tests.unit.codegen.programs import ZERO, index_var, loop, output_like
from weft.codegen.llvm.build import build_object, build_text, emit_llvm, emit_optimized_llvm
from weft.ir.dtype import DType
from weft.runtime.devices.cpu.threads import Threading
from weft.support.errors import CodegenError, InternalError
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.expr import Broadcast, Ramp, Var, call, const
from weft.tir.func import PrimFunc
from weft.tir.parallel_condition import parallel_if
from weft.tir.stmt import (
    Allocate,
    AttrStmt,
    BufferStore,
    ForKind,
    IfThenElse,
    LetStmt,
    seq,
)
from weft.tir.transform.pipeline import lower_prim_func

PARALLEL = ForKind.PARALLEL
INT32 = DType.of("int32")


def real(value: float) -> x.PrimExpr:
    return x.FloatImm(value, DType.of("float32"))


def arange(count: int, dtype: str = "float32") -> np.ndarray:
    return np.arange(count).astype(DType.of(dtype).numpy)


def test_nested_loops_with_bounds_that_depend_on_each_other(compiler: Compiler) -> None:
    out, i, j = (
        buffer(
            "out",
            [
                10,
            ],
            "int64",
        ),
        index_var("i"),
        index_var("j"),
    )
    inner = loop(j, i - 2, BufferStore(out, out.load(i) + j * j, (i,)), start=i)
    func = PrimFunc("f", (out,), loop(i, 10, inner))
    compiler.check(func, [], [output_like("int64", 10)])


@pytest.mark.parametrize("count", [0, 1, 5])
def test_symbolic_extent(compiler: Compiler, count: int) -> None:
    n, i = index_var("n"), index_var()
    a, out = buffer("a", [n]), buffer("out", [n + 1])
    body = seq([loop(i, n, BufferStore(out, a.load(i) + real(1), (i,))),
                BufferStore(out, real(9), (n,))])  # fmt: skip
    func = PrimFunc("f", (n, a, out), body)
    compiler.check(func, [count, arange(count)], [output_like("float32", count + 1)])


def test_empty_loops_run_never(compiler: Compiler) -> None:
    n, i, out = index_var("n"), index_var(), buffer("out", [1])
    bodies = [loop(i, e, BufferStore(out, real(1), (ZERO,)), start=s, kind=k)
              for e in (0, n, n - 3) for s in (0, 4)
              for k in (ForKind.SERIAL, PARALLEL)]  # fmt: skip
    [found] = compiler.check(PrimFunc("f", (n, out), seq(bodies)), [0],
                             [output_like("float32", 1)])  # fmt: skip
    assert found[0] == 0


def test_one_variable_in_loops_of_different_ranges(compiler: Compiler) -> None:
    """What holds of the first range (not negative: divide by a shift) must not be used later."""
    i, out = index_var(), buffer("out", [12], "int64")
    third, half = x.FloorDiv(i, const(3)), x.FloorDiv(i, const(2))
    body = seq([
        loop(i, 6, BufferStore(out, third + half, (i,))),
        loop(i, 6, BufferStore(out, third + half, (i + 12,)), start=-6),
    ])  # fmt: skip
    [found] = compiler.check(PrimFunc("f", (out,), body), [], [output_like("int64", 12)])
    assert found[6] == -5


def test_branches(compiler: Compiler) -> None:
    i, out = index_var(), buffer("out", [9], "int64")
    odd = x.EQ(x.FloorMod(i, const(2)), const(1))
    body = seq([
        IfThenElse(odd, BufferStore(out, i * i, (i,)), BufferStore(out, i * i + i, (i,))),
        IfThenElse(i > 6, BufferStore(out, i * i, (i - 6,))),
    ])  # fmt: skip
    func = PrimFunc("f", (out,), loop(i, 9, AttrStmt("pragma_note", 1, body)))
    compiler.check(func, [], [output_like("int64", 9)])


def capture_program(start: int) -> PrimFunc:
    """A parallel loop that uses buffers, a size, an outer variable and a let from outside."""
    n, i, j = index_var("n"), index_var("i"), index_var("j")
    a, out = buffer("a", [12]), buffer("out", [40])
    v, f = Var("v", DType.of("int64")), Var("f", DType.of("bool"))
    each = BufferStore(out, x.select(f, a.load(j) + v.astype("float32"), real(-1)),
                       (j * 3 + i + v,))  # fmt: skip
    body = LetStmt(v, i + 1, LetStmt(f, n > 3, loop(j, n, each, start=start, kind=PARALLEL)))
    return PrimFunc("f", (n, a, out), loop(i, 2, body))


@pytest.mark.parametrize("start", [0, 5])
@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_parallel_loops_capture_what_they_use(compiler: Compiler, count: int, start: int) -> None:
    compiler.check(capture_program(start), [count, arange(12)], [output_like("float32", 40)])


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_parallel_loops_under_a_condition(compiler: Compiler, count: int) -> None:
    func = capture_program(5)
    func = parallel_if(func, func.params[0] >= 4)
    compiler.check(func, [count, arange(12)], [output_like("float32", 40)])
    assert emit_llvm(func, compiler.target).count("call void @weft_parallel_launch") == 1
    assert emit_llvm(func, compiler.target).count("call void @f.parallel") == 1


def test_parallel_variables_are_known_not_to_be_negative(compiler: Compiler) -> None:
    i, out = index_var(), buffer("out", [64], "int64")
    func = PrimFunc("f", (out,), loop(i, 64, BufferStore(out, x.FloorDiv(i, const(7)), (i,)),
                                      kind=PARALLEL))  # fmt: skip
    assert "udiv" in emit_llvm(func, compiler.target)
    compiler.check(func, [], [output_like("int64", 64)])


def test_nested_parallel_loops(compiler: Compiler) -> None:
    i, j, out = index_var("i"), index_var("j"), buffer("out", [30], "int64")
    inner = loop(j, 5, BufferStore(out, i * 10 + j, (i * 5 + j,)), start=0, kind=PARALLEL)
    func = PrimFunc("f", (out,), loop(i, 6, inner, kind=PARALLEL))
    compiler.check(func, [], [output_like("int64", 30)])


def test_scratch_of_a_parallel_body_is_its_own(compiler: Compiler) -> None:
    i, k, out = index_var("i"), index_var("k"), buffer("out", [16], "int64")
    t = buffer("t", [8], "int64")
    total = seq([
        loop(k, 8, BufferStore(t, i * k, (k,))),
        BufferStore(out, ZERO, (i,)),
        loop(k, 8, BufferStore(out, out.load(i) + t.load(k), (i,))),
    ])  # fmt: skip
    func = PrimFunc("f", (out,), loop(i, 16, Allocate(t, total), kind=PARALLEL))
    compiler.check(func, [], [output_like("int64", 16)])


def workspace_program() -> PrimFunc:
    """Two stages through scratch memory, the second read by threads."""
    i, j = index_var("i"), index_var("j")
    a, out, t, u = buffer("a", [100]), buffer("out", [100]), buffer("t", [100]), buffer("u", [50])
    body = seq([
        loop(i, 100, BufferStore(t, a.load(i) * real(2), (i,)), kind=PARALLEL),
        loop(i, 50, BufferStore(u, t.load(i * 2) + t.load(i * 2 + 1), (i,))),
        loop(j, 100, BufferStore(out, u.load(x.FloorDiv(j, const(2))) + t.load(j), (j,)),
             kind=PARALLEL),
    ])  # fmt: skip
    return lower_prim_func(PrimFunc("f", (a, out), Allocate(t, Allocate(u, body))))


def test_scratch_lives_in_the_workspace(compiler: Compiler) -> None:
    func = workspace_program()
    assert func.attrs["workspace_bytes"] == 448 + 256
    [found] = compiler.check(func, [arange(100)], [output_like("float32", 100)])
    assert found[5] == 2 * (4 + 5) + 10
    text = emit_llvm(func, compiler.target)
    assert "getelementptr inbounds i8, ptr %workspace, i64 448" in text
    assert "x float]" not in text  # nothing of them is on the stack


def test_large_scratch_of_a_parallel_body_is_sliced(compiler: Compiler) -> None:
    i, k, out, t = index_var("i"), index_var("k"), buffer("out", [3]), buffer("t", [200_000])
    body = Allocate(t, seq([
        loop(k, 200_000, BufferStore(t, (i + k).astype("float32"), (k,))),
        BufferStore(out, t.load(const(199_999)), (i,)),
    ]))  # fmt: skip
    func = lower_prim_func(PrimFunc("f", (out,), loop(i, 3, body, kind=PARALLEL)))
    found = output_like("float32", 3)
    compiler.compile(func)(found)
    assert found.tolist() == [199_999, 200_000, 200_001]
    assert "alloca [200000" not in emit_llvm(func, compiler.target)


def test_disjoint_buffers_let_loads_leave_loops(compiler: Compiler) -> None:
    """A load of one scratch buffer is invariant although another is stored in the loop."""
    i, a = index_var("i"), buffer("a", [4])
    t, u, out = buffer("t", [4]), buffer("u", [4096]), buffer("out", [1])
    body = seq([
        BufferStore(t, a.load(ZERO), (ZERO,)),
        loop(i, 4096, BufferStore(u, t.load(ZERO), (i,))),
        BufferStore(out, u.load(const(17)), (ZERO,)),
    ])  # fmt: skip
    func = lower_prim_func(PrimFunc("f", (a, out), Allocate(t, Allocate(u, body))))
    compiler.check(func, [arange(4) + 3], [output_like("float32", 1)])
    text = emit_optimized_llvm(func, compiler.target)
    body_of_loop = text.partition("phi i64")[2].partition("br i1")[0]
    assert "store float" in body_of_loop
    assert "load float" not in body_of_loop


@pytest.mark.parametrize("size", [2, 3, 7])
def test_threads_give_the_same_bits(compiler: Compiler, size: int) -> None:
    i, k = index_var("i"), index_var("k")
    a, out = buffer("a", [64]), buffer("out", [13])
    body = seq([
        BufferStore(out, real(0), (i,)),
        loop(k, 64, BufferStore(out, out.load(i) + a.load(k) * i.astype("float32"), (i,))),
    ])  # fmt: skip
    compiled = compiler.compile(PrimFunc("f", (a, out), loop(i, 13, body, kind=PARALLEL)))
    data = np.random.default_rng(0).standard_normal(64).astype(np.float32)
    serial, threaded = output_like("float32", 13), output_like("float32", 13)
    compiled(data, serial)
    Threading(compiled.library).apply(size)
    compiled(data, threaded)
    assert serial.tobytes() == threaded.tobytes()


def test_several_parallel_loops_have_functions_of_their_own(compiler: Compiler) -> None:
    i, out = index_var(), buffer("out", [8], "int64")
    body = seq([loop(i, 4, BufferStore(out, i * 3 + k, (i + 4 * k,)), kind=PARALLEL)
                for k in range(2)])  # fmt: skip
    func = PrimFunc("f", (out,), body)
    compiler.check(func, [], [output_like("int64", 8)])
    text = emit_llvm(func, compiler.target)
    assert text.count("define internal void @f.parallel") == 2


def test_calls_of_other_objects(compiler: Compiler) -> None:
    """A kernel is called by symbol; unless its symbol is promised, that is refused."""
    out = buffer("out", [1], "int32")
    value = call("int32", "call_extern", x.StringImm("other"), x.IntImm(20, INT32))
    func = PrimFunc("f", (out,), BufferStore(out, value + value, (ZERO,)))
    with pytest.raises(CodegenError, match="undefined symbol: other"):
        build_object(func, compiler.target)
    assert build_object(func, compiler.target, externs=frozenset(["other"])).symbol == "f"


def test_deep_expressions(compiler: Compiler) -> None:
    a, out, i = buffer("a", [3]), buffer("out", [3]), index_var()
    value = a.load(i)
    for n in range(3000):
        value = x.maximum(value, real(-1.0 - n)) + real(1)
    func = PrimFunc("f", (a, out), loop(i, 3, BufferStore(out, value, (i,))))
    found = output_like("float32", 3)
    compiler.compile(func)(arange(3), found)
    assert found.tolist() == [3000, 3001, 3002]


def test_objects_are_deterministic(compiler: Compiler) -> None:
    first, second = (build_object(workspace_program(), compiler.target) for _ in range(2))
    assert first.object == second.object
    assert first.llvm_ir == second.llvm_ir


def test_loops_left_to_passes_are_a_bug(compiler: Compiler) -> None:
    i, out = index_var(), buffer("out", [4])
    for kind in (ForKind.VECTORIZED, ForKind.UNROLLED):
        body = loop(i, 4, BufferStore(out, real(1), (i,)), kind=kind)
        with pytest.raises(InternalError, match="loop over int64 reached"):
            compiler.compile(PrimFunc("f", (out,), body))


def test_if_then_else_with_a_vector_condition_is_an_error(compiler: Compiler) -> None:
    out = buffer("out", [4])
    lanes = Ramp(ZERO, const(1), 4)
    one = Broadcast(real(1), 4)
    value = call("float32x4", "if_then_else", x.LT(lanes, Broadcast(const(2), 4)), one, one + one)
    with pytest.raises(CodegenError, match="if_then_else with a vector condition"):
        compiler.compile(PrimFunc("f", (out,), BufferStore(out, value, (lanes,))))


def test_transcendentals_must_be_lowered_before(compiler: Compiler) -> None:
    out = buffer("out", [1])
    value = call("float32", "exp", real(1))
    func = PrimFunc("f", (out,), BufferStore(out, value, (ZERO,)))
    with pytest.raises(CodegenError, match="unsupported intrinsic: exp"):
        compiler.compile(func)
    compiler.check(lower_prim_func(func), [], [output_like("float32", 1)])


def test_invalid_llvm_ir_is_an_internal_error(compiler: Compiler) -> None:
    with pytest.raises(InternalError, match="LLVM rejected generated code"):
        build_text("f", "define void @f() { ret i32 0 }", compiler.target)
