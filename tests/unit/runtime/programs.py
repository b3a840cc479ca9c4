"""A small program in machine code: y = 2 * (x + c), its first kernel threaded."""

from __future__ import annotations

import functools

import numpy as np

from weft.codegen.elf.linker import link_shared
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.runtime import (
    ConstantSpec,
    KernelCall,
    Manifest,
    TargetSpec,
    TensorSpec,
)
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary
from weft.runtime.executable import Executable, open_executable
from weft.runtime.launchers import Code
from weft.runtime.library import Library
from weft.target import CpuTarget, Target

SIZE = 1000
C = np.linspace(-1, 1, SIZE, dtype=np.float32)
ARENA_OFFSET = 64

_LOOP = """
define {linkage} void @{name}(i64 %begin, i64 %end, ptr %data) nounwind {{
entry:
  %empty = icmp sge i64 %begin, %end
  br i1 %empty, label %done, label %head
head:
  %a = load ptr, ptr %data
  %b.at = getelementptr ptr, ptr %data, i64 1
  %b = load ptr, ptr %b.at
  %c.at = getelementptr ptr, ptr %data, i64 2
  %c = load ptr, ptr %c.at
  br label %loop
loop:
  %i = phi i64 [ %begin, %head ], [ %next, %loop ]
  %a.i = getelementptr float, ptr %a, i64 %i
  %b.i = getelementptr float, ptr %b, i64 %i
  %c.i = getelementptr float, ptr %c, i64 %i
  %x = load float, ptr %a.i
  %y = load float, ptr %b.i
  %z = fadd float %x, %y
  store float %z, ptr %c.i
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
_KERNELS = """
declare void @weft_parallel_launch(ptr, ptr, i64)

define void @add_constant(ptr %x, ptr %c, ptr %t) nounwind {{
  %data = alloca [3 x ptr]
  store ptr %x, ptr %data
  %second = getelementptr ptr, ptr %data, i64 1
  store ptr %c, ptr %second
  %third = getelementptr ptr, ptr %data, i64 2
  store ptr %t, ptr %third
  call void @weft_parallel_launch(ptr @add_body, ptr %data, i64 {size})
  ret void
}}

define void @double(ptr %t, ptr %y) nounwind {{
  call void @add_constant(ptr %t, ptr %t, ptr %y)
  ret void
}}

define i32 @weft_main(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena) {{
  %x = load ptr, ptr %inputs
  %y = load ptr, ptr %outputs
  %t = getelementptr i8, ptr %arena, i64 {offset}
  call void @add_constant(ptr %x, ptr %constants, ptr %t)
  call void @double(ptr %t, ptr %y)
  ret i32 {status}
}}
"""


@functools.cache
def host() -> Target:
    return CpuTarget.host()


@functools.cache
def objects(status: int = 0) -> tuple[bytes, ...]:
    text = _LOOP.format(linkage="internal", name="add_body")
    text += _KERNELS.format(size=SIZE, offset=ARENA_OFFSET, status=status)
    return (build_text("program", text, host()).object, build_runtime_support(host()).object)


@functools.cache
def code() -> bytes:
    """The shared object of the program."""
    return link_shared(objects())


def manifest() -> Manifest:
    target = host()
    steps = (
        KernelCall("add_constant", (("input", 0), ("const", 0), ("arena", ARENA_OFFSET)),
                   "cpu.injective", "add", SIZE, 12 * SIZE),
        KernelCall("double", (("arena", ARENA_OFFSET), ("output", 0)),
                   "cpu.injective", "multiply", SIZE, 8 * SIZE),
    )  # fmt: skip
    return Manifest(
        inputs=(TensorSpec("x", "float32", (SIZE,)),),
        outputs=(TensorSpec("y", "float32", (SIZE,)),),
        target=TargetSpec(target.triple, target.cpu, target.features),
        arena_bytes=ARENA_OFFSET + 4 * SIZE, constants_bytes=C.nbytes, steps=steps,
        constants=(ConstantSpec(0, "float32", (SIZE,)),), weft_version="0.1.0",
    )


def module(status: int = 0) -> Executable:
    return opened(manifest(), ObjectLibrary(objects(status)), C)


def opened(described: Manifest, library: Library, constants: bytes | np.ndarray) -> Executable:
    return open_executable(Code(described, lambda: library, constants))


def expected(x: np.ndarray) -> np.ndarray:
    return np.float32(2) * (x + C)


def sample(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)
