"""Object files: their symbols, linking in memory, and what is refused before LLVM sees it."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.codegen.conftest import Compiler
from tests.unit.codegen.programs import ZERO, index_var, loop
from weft.codegen.llvm.build import build_object, build_text, emit_assembly
from weft.codegen.llvm.jit import JitLibrary
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.codegen.llvm.target_machine import STRENGTH_REDUCED_LINES, target_machine
from weft.runtime.devices.cpu.elf.object_file import read_symbols
from weft.support.errors import CodegenError, TargetError
from weft.target import CpuTarget
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.expr import call, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, Evaluate, ForKind, seq


def store_one(name: str, kind: ForKind = ForKind.SERIAL) -> PrimFunc:
    i, out = index_var(), buffer("out", [4], "int64")
    return PrimFunc(name, (out,), loop(i, 4, BufferStore(out, i, (i,)), kind=kind))


def test_symbols_of_an_object(compiler: Compiler) -> None:
    obj = build_object(store_one("kernel", ForKind.PARALLEL), compiler.target).object
    found = {s.name: s for s in read_symbols(obj)}
    assert found["kernel"].is_defined
    assert found["kernel"].is_global
    assert found["kernel"].size > 0
    assert not found["kernel.parallel0"].is_global
    assert not found["weft_parallel_launch"].is_defined


@pytest.mark.parametrize("damage", ["empty", "magic", "truncated", "table"])
def test_damaged_objects_are_refused(compiler: Compiler, damage: str) -> None:
    obj = bytearray(build_object(store_one("kernel"), compiler.target).object)
    if damage == "empty":
        obj = bytearray()
    elif damage == "magic":
        obj[1] = 0
    elif damage == "truncated":
        obj = obj[: len(obj) // 2]
    else:
        obj[40:48] = (1 << 60).to_bytes(8, "little")
    with pytest.raises(CodegenError, match="ELF object"):
        read_symbols(bytes(obj))


def test_objects_that_call_one_another(compiler: Compiler) -> None:
    callee = PrimFunc("callee", (out := buffer("out", [1], "int64"),),
                      BufferStore(out, out.load(ZERO) * 7, (ZERO,)))  # fmt: skip
    caller_out = buffer("out", [1], "int64")
    place = call("handle", "address_of", caller_out.load(ZERO))
    run = call("handle", "call_extern", x.StringImm("callee"), place)
    body = seq([BufferStore(caller_out, const(6), (ZERO,)), Evaluate(run),
                BufferStore(caller_out, caller_out.load(ZERO) + 1, (ZERO,))])  # fmt: skip
    objects = [
        build_object(PrimFunc("caller", (caller_out,), body), compiler.target,
                     externs=frozenset(["callee"])).object,
        build_object(callee, compiler.target).object,
    ]  # fmt: skip
    library = JitLibrary(objects)
    cell = ctypes.c_int64(0)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(library.address("caller"))(ctypes.addressof(cell))
    assert cell.value == 43


def test_a_missing_symbol_is_refused_before_linking(compiler: Compiler) -> None:
    obj = build_object(store_one("kernel", ForKind.PARALLEL), compiler.target).object
    with pytest.raises(CodegenError, match="undefined symbol: ") as caught:
        JitLibrary([obj])
    assert "weft_parallel_launch" in str(caught.value)


def test_an_unknown_name_has_no_address(compiler: Compiler) -> None:
    library = JitLibrary([build_object(store_one("kernel"), compiler.target).object])
    assert library.address("kernel")
    with pytest.raises(CodegenError, match="does not define 'kernle'"):
        library.address("kernle")


def test_libraries_are_independent(compiler: Compiler) -> None:
    """One symbol in two libraries: each has its own, and one outlives the other."""
    first = JitLibrary([build_object(store_one("kernel"), compiler.target).object])
    second = JitLibrary([build_object(store_one("kernel"), compiler.target).object])
    assert first.address("kernel") != second.address("kernel")
    del first
    cells = (ctypes.c_int64 * 4)()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(second.address("kernel"))(ctypes.addressof(cells))
    assert list(cells) == [0, 1, 2, 3]


def test_constants_and_code_are_linked(compiler: Compiler) -> None:
    """A kernel that reads a constant pool, in a library of several objects."""
    library = JitLibrary([build_runtime_support(compiler.target).object])
    peak = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(library.address("weft_fma_peak"))
    flops = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address("weft_fma_peak_flops"))()
    assert peak(10) > 0
    assert flops > 0
    assert flops % compiler.target.lanes("float32") == 0


def test_perf_map(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    before = path.read_text(encoding="ascii") if path.exists() else None
    monkeypatch.setenv("WEFT_PERF_MAP", "1")
    try:
        obj = build_object(store_one("mapped", ForKind.PARALLEL), compiler.target).object
        library = JitLibrary([obj, compiler.support])
        lines = path.read_text(encoding="ascii").removeprefix(before or "").splitlines()
    finally:
        if before is None:
            path.unlink(missing_ok=True)
    spans = {name: (int(start, 16), int(size, 16)) for start, size, name in map(str.split, lines)}
    assert spans["mapped"][0] == library.address("mapped")
    assert {"mapped", "mapped.parallel0", "weft_parallel_launch", "weft.take_part"} <= set(spans)
    ends = 0
    for start, size in sorted(spans.values()):
        assert start >= ends
        assert size > 0
        ends = start + size


def test_no_perf_map_unless_asked(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_PERF_MAP", raising=False)
    path = Path(f"/tmp/perf-{os.getpid()}.map")
    existed = path.exists()
    JitLibrary([build_object(store_one("unmapped"), compiler.target).object])
    assert path.exists() == existed


def test_unknown_calls_in_text_are_refused(compiler: Compiler) -> None:
    text = "declare void @absent()\ndefine void @f() {\n  call void @absent()\n  ret void\n}\n"
    with pytest.raises(CodegenError, match="absent"):
        build_text("f", text, compiler.target)
    assert build_text("f", text, compiler.target, externs=frozenset(["absent"])).object


EVERY_THIRD = """define void @f(ptr noalias %p, ptr noalias %q, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %q, i64 %i
  %value = load float, ptr %from, align 4
  %place = mul i64 %i, 3
  %to = getelementptr float, ptr %p, i64 %place
  store float %value, ptr %to, align 4
  %next = add nsw i64 %i, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
"""


def test_code_depends_on_no_other_thread(compiler: Compiler) -> None:
    """LLVM's strength reduction is switched for all threads at once."""
    texts = [EVERY_THIRD, EVERY_THIRD + ";\n" * STRENGTH_REDUCED_LINES] * 8

    def build(text: str) -> bytes:
        return build_text("f", text, compiler.target).object

    alone = [build(text) for text in texts]
    assert alone[0] != alone[1]
    assert alone[::2] == alone[:1] * 8  # the switch is put back
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(build, texts)) == alone


def test_assembly_names_the_function(compiler: Compiler) -> None:
    assert "kernel:" in emit_assembly(store_one("kernel"), compiler.target)


def test_vectors_beyond_all_reason_are_refused(compiler: Compiler) -> None:
    out = buffer("out", [1 << 16])
    wide = x.Broadcast(x.FloatImm(1.0, out.dtype), 1 << 16)
    store = BufferStore(out, wide, (x.Ramp(ZERO, const(1), 1 << 16),))
    with pytest.raises(CodegenError, match="65536 lanes"):
        build_object(PrimFunc("f", (out,), store), compiler.target)


def test_architecture_that_llvm_does_not_know() -> None:
    with pytest.raises(TargetError, match="unknown target triple"):
        target_machine(CpuTarget("pdp11-unknown-linux-gnu", "generic"))
