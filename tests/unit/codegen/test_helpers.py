"""Helper functions give what the C library and NumPy give; objects of every format have symbols."""

from __future__ import annotations

import ctypes
import math
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.codegen.elf import relocatable
from weft.codegen.elf.combine import combined
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.helpers.build import HELPER_SYMBOLS, helper_objects
from weft.codegen.llvm.program_text import preamble
from weft.codegen.objects import coff, macho, wasm
from weft.codegen.objects.symbols import ObjectSymbol, object_symbols
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary
from weft.runtime.devices.cpu.host import machine
from weft.support.errors import CodegenError
from weft.target import CpuTarget

runs_here = pytest.mark.skipif(machine() != "x86_64", reason="objects are loaded on x86-64 alone")
D, F, I64 = ctypes.c_double, ctypes.c_float, ctypes.c_int64
TARGETS = {
    "elf64": "-mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72",
    "elf32": "-mtriple=armv7-unknown-linux-gnueabihf -mcpu=cortex-a7",
    "bare": "-mtriple=thumbv7em-none-eabihf -mcpu=cortex-m4",
    "wasm": "-mtriple=wasm32-unknown-unknown -mcpu=simd",
    "coff": "-mtriple=x86_64-pc-windows-msvc -mcpu=haswell",
    "macho": "-mtriple=arm64-apple-macosx11.0 -mcpu=apple-m1",
}
TEXT = """
@table = external constant i8
declare void @other(ptr)
define internal i32 @inner(i32 %x) noinline {
  %y = mul i32 %x, 7
  ret i32 %y
}
define i32 @middle(i32 %x) {
  %y = call i32 @inner(i32 %x)
  ret i32 %y
}
define i32 @net_run(i32 %x) {
  call void @other(ptr @table)
  %y = call i32 @middle(i32 %x)
  ret i32 %y
}"""


@pytest.fixture(scope="module")
def helpers() -> Callable[..., Callable[..., Any]]:
    target = CpuTarget.of("llvm -mcpu=x86-64")
    names = "\n".join(f"declare void @{name}()" for name in sorted(HELPER_SYMBOLS))
    calls = "\n".join(f"call void @{name}()" for name in sorted(HELPER_SYMBOLS))
    user = build_text("user", f"{preamble(target)}\n{names}\ndefine void @user() {{\n{calls}\n"
                      "ret void\n}", target).object
    library = ObjectLibrary(helper_objects([user], target, has_c_library=False))
    return lambda name, *types: ctypes.CFUNCTYPE(*types)(library.address(name))


def same(got: float, expected: float) -> bool:
    return struct.pack("d", got) == struct.pack("d", expected) or (
        math.isnan(got) and math.isnan(expected))


def wild(rng: random.Random) -> float:
    kind = rng.random()
    if kind < 0.3:
        return struct.unpack("d", rng.randbytes(8))[0]
    if kind < 0.5:
        return rng.choice([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324,
                           1.7976931348623157e308, 2.2250738585072014e-308])
    return rng.uniform(-2, 2) * 2.0 ** rng.randint(-60, 60)


@runs_here
@pytest.mark.parametrize(("name", "kind"), [("fma", D), ("fmaf", F)])
def test_fused_multiply_add_rounds_once(helpers, name, kind):
    library = ctypes.CDLL("libm.so.6")
    expected = getattr(library, name)
    expected.restype, expected.argtypes = kind, [kind] * 3
    found, rng = helpers(name, kind, kind, kind, kind), random.Random(3)
    for _ in range(20000):
        x, y, z = (kind(wild(rng)).value for _ in range(3))
        if rng.random() < 0.3 and math.isfinite(x * y):
            z = kind(-(x * y) * (1 + rng.choice([0, 2**-52, -(2**-53), 2**-30]))).value
        assert same(found(x, y, z), expected(x, y, z)), (x, y, z)


@runs_here
@pytest.mark.parametrize("name", ["floor", "ceil", "trunc", "rint"])
def test_rounding(helpers, name):
    values = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -0.2, 1e30, math.inf, -math.inf, math.nan,
              4503599627370495.5, 8388607.5, *np.random.default_rng(0).uniform(-1e6, 1e6, 200)]
    for suffix, kind, dtype in (("", D, np.float64), ("f", F, np.float32)):
        found = helpers(name + suffix, kind, kind)
        for value in np.array(values, dtype):
            assert same(found(float(value)), float(getattr(np, name)(value)))


@runs_here
def test_conversions_of_64_bit_integers(helpers):
    rng = random.Random(5)
    numbers = [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1, 2**24 + 1, 2**40 + 2**16,
               *(rng.getrandbits(rng.randint(1, 63)) * rng.choice([1, -1]) for _ in range(500))]
    for suffix, kind, dtype in (("sf", F, np.float32), ("df", D, np.float64)):
        signed, unsigned = (helpers(f"__float{u}di{suffix}", kind, I64) for u in ("", "un"))
        back = helpers(f"__fix{suffix}di", I64, kind)
        for number in numbers:
            assert signed(number) == dtype(np.int64(number))
            assert unsigned(number) == dtype(np.uint64(number % 2**64))
            value = float(dtype(number / 7))
            assert abs(value) >= 2**63 or back(value) == int(value)


@runs_here
@pytest.mark.parametrize("bits", [32, 64])
def test_division(helpers, bits):
    rng, letter = random.Random(7), "si" if bits == 32 else "di"
    for sign in ("", "u"):
        kind = getattr(ctypes, f"c_{sign}int{bits}")
        divide, modulo = (helpers(f"__{sign}{what}{letter}3", kind, kind, kind)
                          for what in ("div", "mod"))
        for _ in range(500):
            a, b = (kind(rng.getrandbits(rng.randint(1, bits))).value for _ in range(2))
            if b == 0 or (a, b) == (-(2 ** (bits - 1)), -1):
                continue
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
            assert (divide(a, b), modulo(a, b)) == (quotient, a - quotient * b)


@runs_here
def test_memory(helpers):
    rng, pointer, size = random.Random(9), ctypes.c_void_p, ctypes.c_size_t
    move, copy = (helpers(n, pointer, pointer, pointer, size) for n in ("memmove", "memcpy"))
    fill = helpers("memset", pointer, pointer, ctypes.c_int, size)
    repeat = helpers("memset_pattern4", None, pointer, pointer, size)
    for _ in range(300):
        data = bytearray(rng.randbytes(64))
        expected = bytearray(data)
        start = ctypes.addressof((ctypes.c_char * 64).from_buffer(data))
        to, at, count = rng.randint(0, 31), rng.randint(0, 15), rng.randint(0, 16)
        move(start + to, start + at, count)
        expected[to : to + count] = expected[at : at + count]
        copy(start + 32, start + at, count)
        expected[32 : 32 + count] = expected[at : at + count]
        fill(start + to, 300, count)
        expected[to : to + count] = bytes([300 & 255]) * count
        repeat(start + 48, start, count)
        expected[48 : 48 + count] = (expected[:4] * 4)[:count]
        assert data == expected


def compiled(kind: str) -> bytes:
    target = CpuTarget.of(f"llvm {TARGETS[kind]}")
    return build_text("net_run", preamble(target) + TEXT, target,
                      externs=frozenset(("other", "table"))).object


@pytest.mark.parametrize("kind", TARGETS)
def test_symbols_of_every_format(kind: str) -> None:
    named = {s.name: s for s in object_symbols(compiled(kind))}
    assert named["net_run"] == ObjectSymbol("net_run", is_defined=True, is_global=True)
    assert named["other"] == ObjectSymbol("other", is_defined=False, is_global=True)
    assert not named["table"].is_defined


MODULES = {"elf64": relocatable, "elf32": relocatable, "bare": relocatable, "wasm": wasm,
           "coff": coff, "macho": macho}


@pytest.mark.parametrize("kind", MODULES)
def test_all_but_the_functions_of_an_artifact_become_local(kind: str) -> None:
    code = compiled(kind)
    made = coff.merged([code], {"net_run"}) if kind == "coff" \
        else MODULES[kind].localize(code, {"net_run"})
    named = {s.name: s for s in object_symbols(made)}
    assert named["net_run"].is_global
    assert named["other"].is_global
    assert not named["middle"].is_global


@pytest.mark.parametrize("kind", MODULES)
def test_an_object_of_data(kind: str) -> None:
    data = bytes(range(200))
    code = MODULES[kind].data_object("weights", data, like=compiled(kind))
    assert data in code
    (symbol,) = object_symbols(code)
    assert (symbol.name, symbol.is_defined) == ("weights", True)


def test_coff_objects_become_one() -> None:
    """Symbols that another object defines are its own, whichever comes first."""
    code, like = compiled("coff"), compiled("coff")
    table = coff.data_object("table", bytes(8), like)
    for objects in ([code, table], [table, code]):
        named = {s.name: s for s in object_symbols(coff.merged(objects, {"net_run"}))}
        assert named["table"].is_defined
        assert not named["table"].is_global
        assert not named["other"].is_defined


@pytest.mark.parametrize("triple", ["x86_64-pc-windows-msvc -mcpu=haswell",
                                    "aarch64-pc-windows-msvc -mcpu=generic"])
def test_windows_extends_the_stack_for_large_frames(triple: str) -> None:
    """The functions that LLVM calls for that come along."""
    target = CpuTarget.of(f"llvm -mtriple={triple}")
    text = """
declare void @other(ptr)
define float @net_run(float %x) {
  %large = alloca [20000 x i8]
  call void @other(ptr %large)
  %y = fmul float %x, %x
  ret float %y
}"""
    code = build_text("net_run", preamble(target) + text, target,
                      externs=frozenset(("other",))).object
    made = combined([code], ("weights", bytes(4)), {"net_run"}, target.platform)
    left = {s.name for s in object_symbols(made) if not s.is_defined}
    assert left == {"other"}


def test_functions_that_a_cpu_lacks_come_along_or_are_refused() -> None:
    text = """
define i64 @f(i64 %x, i64 %y, float %z, ptr %p) {{
  %q = sdiv i64 %x, %y
  {}
  ret i64 %q
}}"""
    target = CpuTarget.of(f"llvm {TARGETS['bare']}")
    code = build_text("f", preamble(target) + text.format(""), target).object
    (made,) = helper_objects([code], target, has_c_library=False)
    assert "__divdi3" in {s.name for s in object_symbols(made) if s.is_defined}
    wide = """%d = fpext float %z to double
  %e = fmul double %d, %d
  store double %e, ptr %p"""
    with pytest.raises(CodegenError, match="cortex-m4 lacks instructions") as caught:
        build_text("f", preamble(target) + text.format(wide), target)
    assert "__muldf3" in str(caught.value.got)
    assert "-mattr=+fp64" in str(caught.value.help)
    library = CpuTarget.of(f"llvm {TARGETS['elf64']}")
    fill = """declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @f(ptr %p, i64 %n) {
  call void @llvm.memset.p0.i64(ptr %p, i8 0, i64 %n, i1 false)
  ret void
}"""
    code = build_text("f", f"{preamble(library)}\n{fill}", library).object
    assert helper_objects([code], library, has_c_library=True) == ()
    assert len(helper_objects([code], library, has_c_library=False)) == 1


def test_other_bytes_are_no_object() -> None:
    with pytest.raises(CodegenError, match="not an object"):
        object_symbols(b"these are no bytes of an object")
    with pytest.raises(CodegenError, match="corrupt"):
        object_symbols(compiled("elf32")[:60])
