"""Objects linked in memory: addresses, tables, rights of pages, and damaged objects."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import binding as llvm

from weft.codegen.llvm.target_machine import initialize_llvm
from weft.runtime.devices.cpu.elf import x86_64
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary
from weft.runtime.devices.cpu.elf.object_file import read_object
from weft.runtime.devices.cpu.host import machine
from weft.runtime.library import function
from weft.support.errors import CodegenError

pytestmark = pytest.mark.skipif(machine() != "x86_64", reason="relocations of x86-64")

CALLER = """
@counter = global i64 40
@table = constant [4 x i64] [i64 1, i64 2, i64 3, i64 4]
@address = global ptr @table
@zeros = global [1000 x i64] zeroinitializer
declare i64 @other(i64)
declare double @fmod(double, double)
define i64 @count(i64 %by) {
  %old = load i64, ptr @counter
  %new = add i64 %old, %by
  store i64 %new, ptr @counter
  ret i64 %new
}
define i64 @element(i64 %i) {
  %start = load ptr, ptr @address
  %at = getelementptr i64, ptr %start, i64 %i
  %value = load i64, ptr %at
  %twice = call i64 @other(i64 %value)
  ret i64 %twice
}
define double @rest(double %a, double %b) {
  %r = call double @fmod(double %a, double %b)
  ret double %r
}
define i64 @sum_of_zeros() {
  %at = getelementptr i64, ptr @zeros, i64 999
  %v = load i64, ptr %at
  ret i64 %v
}
"""
OTHER = """
define i64 @other(i64 %x) {
  %y = mul i64 %x, 2
  ret i64 %y
}
"""


@functools.cache
def compiled(text: str, code_model: str = "default") -> bytes:
    initialize_llvm()
    target = llvm.Target.from_default_triple()
    made = target.create_target_machine(reloc="pic", codemodel=code_model)
    return made.emit_object(llvm.parse_assembly(text))


def loaded() -> ObjectLibrary:
    return ObjectLibrary([compiled(CALLER), compiled(OTHER)])


def test_code_data_and_libraries_find_each_other() -> None:
    library = loaded()
    count = function(library, "count", ctypes.c_int64, ctypes.c_int64)
    assert [count(1), count(1)] == [41, 42]
    element = function(library, "element", ctypes.c_int64, ctypes.c_int64)
    assert [element(i) for i in range(4)] == [2, 4, 6, 8]
    rest = function(library, "rest", ctypes.c_double, ctypes.c_double, ctypes.c_double)
    assert rest(7.5, 2.0) == np.fmod(7.5, 2.0)
    assert function(library, "sum_of_zeros", ctypes.c_int64)() == 0


def test_libraries_have_data_of_their_own() -> None:
    first, second = loaded(), loaded()
    function(first, "count", ctypes.c_int64, ctypes.c_int64)(2)
    assert function(second, "count", ctypes.c_int64, ctypes.c_int64)(1) == 41


def test_no_page_is_both_written_and_executed() -> None:
    library = loaded()
    rights = {line.split()[1][:3] for line in Path("/proc/self/maps").read_text().splitlines()
              if _covers(line, library.address("count"), library.address("counter"))}
    assert rights == {"r-x", "rw-"}


def _covers(line: str, *addresses: int) -> bool:
    start, end = (int(part, 16) for part in line.split(maxsplit=1)[0].split("-"))
    return any(start <= address < end for address in addresses)


def test_unknown_symbols_are_named() -> None:
    with pytest.raises(CodegenError, match="undefined symbol: other"):
        ObjectLibrary([compiled(CALLER)])
    with pytest.raises(CodegenError, match="does not define 'nothing'"):
        loaded().address("nothing")


def test_another_machine_is_refused() -> None:
    data = bytearray(compiled(OTHER))
    data[18] = 183  # AArch64
    with pytest.raises(CodegenError, match="another machine"):
        ObjectLibrary([bytes(data)])


@given(st.integers(0, 10_000), st.integers(0, 255))
def test_damaged_objects_raise_or_load(position: int, value: int) -> None:
    data = bytearray(compiled(CALLER))
    data[position % len(data)] = value
    with contextlib.suppress(CodegenError):
        ObjectLibrary([bytes(data), compiled(OTHER)])


@given(st.integers(0, 4000))
def test_cut_objects_are_refused(length: int) -> None:
    data = compiled(CALLER)
    with pytest.raises(CodegenError):
        read_object(data[: length % len(data)])


def test_addresses_out_of_reach_are_errors() -> None:
    code = bytearray(8)
    with pytest.raises(CodegenError, match="out of reach"):
        x86_64.apply(code, 0, 2, 1 << 40, -4, 0)
    with pytest.raises(CodegenError, match="unknown relocation"):
        x86_64.apply(code, 0, 77, 0, 0, 0)


@pytest.mark.skipif(shutil.which("ld") is None, reason="compares with a linker")
def test_relocations_are_those_of_a_linker(tmp_path: Path) -> None:
    (tmp_path / "a.o").write_bytes(compiled(CALLER.replace("@fmod", "@other2")))
    (tmp_path / "b.o").write_bytes(compiled(
        OTHER + "define double @other2(double %a, double %b) {\n  ret double %a\n}\n"))
    subprocess.run(["ld", "-shared", "-Bsymbolic", "-o", "l.so", "a.o", "b.o"], check=True,
                   cwd=tmp_path)
    theirs = ctypes.CDLL(str(tmp_path / "l.so"))
    ours = ObjectLibrary([(tmp_path / name).read_bytes() for name in ("a.o", "b.o")])
    for i in range(4):
        assert theirs.element(i) == function(ours, "element", ctypes.c_int64, ctypes.c_int64)(i)
