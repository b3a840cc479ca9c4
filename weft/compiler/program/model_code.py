"""Everything a compiled model consists of, and its form in the disk cache."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import weft
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.runtime_support import build_runtime_support
from weft.compiler.build.external_kernel import Callback
from weft.compiler.build.kernel import BuiltKernel, KernelFacts
from weft.compiler.build.kernels import build_kernels
from weft.compiler.options import CompileOptions
from weft.compiler.program.main_function import main_ir, offset_of
from weft.compiler.program.memory_plan import MemoryPlan, aligned, plan_memory
from weft.compiler.program.program import BufferKind, BufferRef, Guard, Port, Program, guards_of
from weft.ir.dtype import DType
from weft.runtime.arena import AlignedBlock
from weft.runtime.manifest import (
    MAIN_SYMBOL,
    BackJump,
    Condition,
    ConstantSpec,
    KernelCall,
    Manifest,
    TargetSpec,
    TensorSpec,
)
from weft.support import trace
from weft.support.errors import ArtifactError
from weft.target import CpuTarget


@dataclass(frozen=True, slots=True)
class ModelCode:
    """``objects`` link into one library; ``constants`` is one 64-byte aligned blob.

    Code with ``callbacks`` calls Python, and so is good in this process alone.
    """

    manifest: Manifest
    objects: tuple[bytes, ...]
    constants: np.ndarray
    callbacks: tuple[Callback, ...] = ()

    def check_portable(self) -> None:
        """Raise ``ArtifactError`` for code that is good in this process alone."""
        if self.callbacks:
            raise ArtifactError(
                "parts of the model are Python functions, which cannot leave this process",
                got=", ".join(callback.name for callback in self.callbacks),
                help="compile without the code generator that gave PythonCode",
            )

    def to_parts(self) -> list[bytes | memoryview]:
        """What the cache stores: a head, the constants (aligned), the objects."""
        head = json.dumps({
            "manifest": self.manifest.to_json(),
            "constants": self.constants.nbytes,
            "objects": [len(obj) for obj in self.objects],
        }).encode()
        padded = head.ljust(aligned(8 + len(head)) - 8)
        return [len(padded).to_bytes(8, "little"), padded, self.constants.data, *self.objects]

    @staticmethod
    def from_payload(payload: memoryview) -> ModelCode:
        """Read back; the constants get memory of their own, on larger pages than a file has."""
        start = 8 + int.from_bytes(payload[:8], "little")
        head = json.loads(bytes(payload[8:start]))
        at = start + head["constants"]
        constants = AlignedBlock(head["constants"]).array
        constants[:] = np.frombuffer(payload[start:at], np.uint8)
        constants.flags.writeable = False
        objects = []
        for size in head["objects"]:
            objects.append(bytes(payload[at : at + size]))
            at += size
        return ModelCode(Manifest.from_json(head["manifest"]), tuple(objects), constants)


def build_model(program: Program, options: CompileOptions) -> ModelCode:
    """Machine code, constants and manifest of a lowered program."""
    target = options.target
    kernels = build_kernels(program.kernels, target, options.extensions.tir_passes)
    facts = [kernel.facts for kernel in kernels]
    plan = plan_memory(program, {n: f.workspace_bytes for n, f in enumerate(facts)},
                       {n: f.in_place for n, f in enumerate(facts) if f.in_place is not None})
    offsets, total = constant_layout(program.constants)
    with trace.span("main"):
        main = _build_main(program, plan, offsets, facts, target)
    objects = (main, *(k.object_code for k in kernels), build_runtime_support(target).object)
    manifest = _manifest(program, plan, offsets, total, facts, target)
    return ModelCode(manifest, objects, pack_constants(program.constants, offsets, total),
                     callbacks_of(kernels))


def callbacks_of(kernels: Sequence[BuiltKernel]) -> tuple[Callback, ...]:
    """What the code of the kernels calls back."""
    return tuple(k.callback for k in kernels if k.callback is not None)


def _build_main(program: Program, plan: MemoryPlan, offsets: Sequence[int],
                facts: Sequence[KernelFacts], target: CpuTarget) -> bytes:
    symbols = [f.symbol for f in facts]
    text = main_ir(program, plan, offsets, symbols, [f.workspace_bytes > 0 for f in facts], target)
    return build_text(MAIN_SYMBOL, text, target, externs=frozenset(symbols)).object


def constant_layout(constants: Sequence[np.ndarray]) -> tuple[list[int], int]:
    """The aligned offset of every constant, and the bytes of all."""
    offsets, at = [], 0
    for array in constants:
        offsets.append(at)
        at += aligned(array.nbytes)
    return offsets, at


def pack_constants(
    constants: Sequence[np.ndarray], offsets: Sequence[int], total: int
) -> np.ndarray:
    """One blob that starts at a multiple of 64 bytes."""
    blob = AlignedBlock(total).array
    at = 0
    for array, offset in zip(constants, offsets, strict=True):
        blob[at:offset] = 0  # what lies between constants is part of artifacts, which are the same
        raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        at = offset + raw.size
        blob[offset:at] = raw
    blob[at:] = 0
    blob.flags.writeable = False
    return blob


def _manifest(program: Program, plan: MemoryPlan, offsets: Sequence[int], constant_bytes: int,
              facts: Sequence[KernelFacts], target: CpuTarget) -> Manifest:
    def argument(ref: BufferRef) -> tuple[str, int]:
        if ref.kind in (BufferKind.INPUT, BufferKind.OUTPUT):
            return ref.kind.value, ref.index
        return ref.kind.value, offset_of(ref, plan, offsets)

    def conditions(guards: Sequence[Guard]) -> tuple[Condition, ...]:
        return tuple((argument(guard.condition), guard.expected) for guard in guards)

    steps = []
    for at, step in enumerate(program.steps):
        known = facts[step.kernel]
        arguments = [argument(ref) for ref in step.buffers]
        if known.workspace_bytes:
            arguments.append(("arena", plan.workspaces[at]))
        guards = conditions(step.guards)
        steps.append(KernelCall(known.symbol, tuple(arguments), known.implementation,
                                program.kernels[step.kernel].text, known.flops, known.bytes_moved,
                                guards))
    jumps = tuple(BackJump(jump.at, jump.loop.first, conditions(guards_of(jump.path)))
                  for jump in program.jumps)
    constants = tuple(ConstantSpec(offset, str(DType.of(array.dtype)), tuple(array.shape))
                      for array, offset in zip(program.constants, offsets, strict=True))
    return Manifest(
        inputs=_specs(program.inputs), outputs=_specs(program.outputs),
        target=TargetSpec(target.triple, target.cpu, target.features),
        arena_bytes=plan.arena_bytes, constants_bytes=constant_bytes, steps=tuple(steps),
        jumps=jumps, constants=constants, output_is_tuple=program.output_is_tuple,
        weft_version=weft.__version__,
    )


def _specs(ports: Sequence[Port]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(p.name, str(p.type.dtype), p.type.concrete_shape) for p in ports)
