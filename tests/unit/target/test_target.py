"""Targets as values: text, features, and what is refused."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding

from weft.codegen.llvm.target_machine import new_target_machine
from weft.runtime.devices.cpu.host import machine
from weft.support.errors import TargetError
from weft.target import CpuTarget, Target
from weft.target.architectures import arch_of
from weft.target.cpus import CPU_FEATURES, named_cpus, with_implied, without
from weft.target.machine_tables import describes, machine_table

ZEN = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4"


@pytest.mark.parametrize("text", [
    "cpu", "llvm", "native", ZEN, f"{ZEN} -mattr=-avx512f", f"{ZEN} -machine=icelake-server",
    f"{ZEN} -l1=49152 -l2=1048576", f"{ZEN} -l3=0",
    "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic -mattr=+sve",
])  # fmt: skip
def test_text_round_trip(text: str) -> None:
    target = CpuTarget.of(text)
    assert CpuTarget.of(str(target)) == target
    assert hash(CpuTarget.of(str(target))) == hash(target)
    assert pickle.loads(pickle.dumps(target)) == target


def test_the_host_is_the_default() -> None:
    assert Target.of(None) == Target.of("cpu") == CpuTarget.host()
    assert Target.of(CpuTarget.host()) == CpuTarget.host()
    assert CpuTarget.host().arch == machine()


@pytest.mark.parametrize(("cpu", "bits", "registers", "lanes"), [
    ("x86-64", 128, 16, 4), ("haswell", 256, 16, 8), ("skylake-avx512", 512, 32, 16),
])  # fmt: skip
def test_vector_facts(cpu: str, bits: int, registers: int, lanes: int) -> None:
    target = CpuTarget.of(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    assert target.vector_bits == bits
    assert target.vector_registers == registers
    assert target.lanes("float32") == lanes
    assert target.lanes("bool") == bits // 8


def test_other_architectures_have_128_bits() -> None:
    target = CpuTarget.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic")
    assert target.has("neon")
    assert (target.vector_bits, target.vector_registers) == (128, 32)


def test_attributes_bring_and_take_what_builds_on_them() -> None:
    base = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu="
    wide = CpuTarget.of(f"{base}x86-64 -mattr=+avx512vnni")
    assert {"avx512bw", "avx512f", "avx2", "fma", "sse3"} <= set(wide.features)
    narrow = CpuTarget.of(f"{base}znver4 -mattr=-avx")
    assert not any(name.startswith(("avx", "fma", "f16c")) for name in narrow.features)
    assert narrow.has("sse4.2")


def test_known_cpus_are_closed_under_implication() -> None:
    for features in CPU_FEATURES.values():
        closed = with_implied(frozenset(features))
        assert with_implied(closed) == closed
        for name in closed:
            assert name not in without(closed, name)


def test_cache_sizes() -> None:
    target = CpuTarget.of(f"{ZEN} -l1=1 -l2=22 -l3=333")
    assert (target.l1_bytes, target.l2_bytes, target.l3_bytes) == (1, 22, 333)
    assert target != CpuTarget.of(ZEN)


@pytest.mark.parametrize(("text", "message"), [
    ("metal", "unknown target 'metal'"),
    ("", "unknown target ''"),
    ("llvm -mcpu=hasswell", "unknown CPU 'hasswell'"),
    ("llvm -mcup=haswell", "unknown option '-mcup=haswell'"),
    ("llvm haswell", "unknown option 'haswell'"),
    ("llvm -mcpu", "unknown option '-mcpu'"),
    ("llvm -mcpu=haswell -mattr=+avx3", r"unknown feature '\+avx3'"),
    ("llvm -mcpu=haswell -mattr=avx", "unknown feature 'avx'"),
    ("llvm -mcpu=haswell -l1=32k", "-l1= of a target is not a positive number"),
    ("llvm -mcpu=haswell -machine=zen9", "unknown machine 'zen9'"),
    ("llvm -mcpu=haswell -machine=neoverse-v1", "has another architecture"),
    ("llvm -mcpu=haswell -machine=clock=3e9", "not a machine"),
    ("llvm -mcpu=haswell -l2=0", "-l2= of a target is not a positive number"),
    ("llvm -mtriple=riscv64-unknown-linux-gnu", "needs a CPU name"),
    ("llvm -mcpu='haswell", "unknown target"),
    ("llvm -mtriple=sparc-unknown-linux-gnu -mcpu=generic", "unsupported architecture"),
    ("llvm -mtriple=i686-unknown-linux-gnu -mcpu=generic", "unsupported architecture"),
    ("llvm -mtriple= -mcpu=generic", "unsupported architecture"),
    ("llvm -mtriple=aarch64-apple-ios17.1 -mcpu=generic", "unsupported operating system"),
    ("llvm -mtriple=x86_64-pc-cygwin -mcpu=haswell", "unsupported operating system"),
    ("llvm -mtriple=riscv64-pc-windows-msvc -mcpu=generic", "unsupported operating system"),
    ("llvm -mtriple=x86_64-unknown-linux-gnux32 -mcpu=haswell", "32-bit environment"),
])  # fmt: skip
def test_refused(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        CpuTarget.of(text)


BEGINNINGS = {"elf": b"\x7fELF", "coff": (b"\x64\x86", b"\x64\xaa"),
              "macho": b"\xcf\xfa\xed\xfe", "wasm": b"\0asm"}
WORDS = ("thumbv7em", "armv7a", "macosx", "gnueabihf",
         "x86_64", "aarch64", "riscv64", "sparc", "wasm32", "nonsense", "", "unknown", "pc",
         "apple", "linux", "none", "darwin", "windows", "wasi", "gnu", "musl", "gnux32",
         "elf", "ILP32")


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4), st.sampled_from(
    ["generic", "haswell", "native"]))
@settings(deadline=None)
def test_any_triple_is_refused_or_gives_code(words: list[str], cpu: str) -> None:
    """What is accepted goes all the way to an object; what is refused is a ``TargetError``."""
    try:
        target = CpuTarget.of(f"llvm -mtriple={'-'.join(words)} -mcpu={cpu}")
    except TargetError as error:
        assert error.expected or error.help  # noqa: PT017 - most draws are refused
        return
    machine_code = new_target_machine(target).emit_object(assembled(target))
    assert machine_code.startswith(BEGINNINGS[target.platform.object_format])


def test_code_for_a_newer_cpu_uses_no_instructions_that_targets_do_not_list() -> None:
    """LLVM would convert to bfloat16 by AVX-NE-CONVERT, which no artifact could say it needs."""
    features = tuple(sorted(with_implied(frozenset(CPU_FEATURES["alderlake"]))))
    target = CpuTarget("x86_64-unknown-linux-gnu", "arrowlake", features)
    module = binding.parse_assembly("""
        define void @f(ptr %x, ptr %y) {
          %a = load <8 x float>, ptr %x
          %b = fptrunc <8 x float> %a to <8 x bfloat>
          store <8 x bfloat> %b, ptr %y
          ret void
        }""")
    assert "vcvtneps2bf16" not in new_target_machine(target).emit_assembly(module)


def assembled(target: CpuTarget) -> binding.ModuleRef:
    return binding.parse_assembly(
        f'target triple = "{target.triple}"\ndefine i64 @f(i64 %x) {{ ret i64 %x }}')


def test_text_says_what_a_named_cpu_lacks() -> None:
    """A virtual machine may hide what its CPU's name promises."""
    known = CpuTarget.of(ZEN)
    features = tuple(f for f in known.features if f != "avx512bf16")
    hidden = CpuTarget(known.triple, known.cpu, features)
    assert "-avx512bf16" in str(hidden)
    assert CpuTarget.of(str(hidden)) == hidden


@pytest.mark.parametrize("value", [3, ["cpu"], b"cpu"])
def test_what_is_neither_target_nor_text_is_refused(value):
    with pytest.raises(TargetError, match="not a target"):
        Target.of(value)


def test_a_name_belongs_to_an_architecture() -> None:
    assert CpuTarget.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=generic").features == ()
    arm = "llvm -mtriple=aarch64-unknown-linux-gnu"
    assert CpuTarget.of(f"{arm} -mcpu=generic").features == ("neon",)
    with pytest.raises(TargetError, match="unknown CPU 'haswell'") as caught:
        CpuTarget.of(f"{arm} -mcpu=haswell")
    assert "generic" in str(caught.value.expected)
    assert "neoverse-v1" in str(caught.value.expected)


def test_generic_risc_v_is_what_linux_requires() -> None:
    target = CpuTarget.of("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic")
    assert target.features == ("a", "c", "d", "f", "m")
    module = binding.parse_assembly(
        f'target triple = "{target.triple}"\n'
        "define double @f(double %x) { %y = fmul double %x, %x ret double %y }")
    code = new_target_machine(target).emit_object(module)
    assert code[48:52] == b"\x05\0\0\0"  # compressed code, floats of 64 bits in registers
    assert b"__muldf3" not in code


@pytest.mark.parametrize("arch", ["x86_64", "aarch64", "riscv64", "armv7", "wasm32"])
def test_llvm_knows_every_named_cpu(arch: str) -> None:
    system = "unknown" if arch == "wasm32" else "linux-gnu"
    for cpu in named_cpus(arch_of(f"{arch}-")):
        target = CpuTarget.of(f"llvm -mtriple={arch}-unknown-{system} -mcpu={cpu}")
        code = new_target_machine(target).emit_object(assembled(target))
        assert code.startswith(BEGINNINGS[target.platform.object_format])
        assert CpuTarget.of(str(target)) == target
        assert describes(machine_table(target.machine), target.arch)


def test_a_target_has_the_caches_of_its_machine() -> None:
    small = CpuTarget.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=cortex-a72")
    assert (small.l1_bytes, small.l2_bytes, small.l3_bytes) == (32 << 10, 256 << 10, 0)
    narrow = CpuTarget.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell")
    assert (narrow.machine, narrow.l2_bytes) == ("haswell", 256 << 10)
    other = CpuTarget.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell -machine=zen3")
    assert (other.machine, other.l2_bytes) == ("zen3", 512 << 10)


def test_texts_without_a_machine_are_those_of_the_cpu() -> None:
    """Texts of earlier versions name no machine."""
    old = f"{ZEN} -l1=32768 -l2=1048576 -l3=33554432"
    assert CpuTarget.of(old) == CpuTarget.of(f"{old} -machine=zen4")
