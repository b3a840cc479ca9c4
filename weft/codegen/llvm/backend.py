"""The back end for CPUs: objects by LLVM, launches by a generated ``weft_main``.

Its methods import what makes code, so that a program whose code is in the cache loads no LLVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from weft.codegen.backend import Backend, TextStage, register_backend
from weft.codegen.launch import LaunchProgram
from weft.runtime.device import HOST, HOST_MEMORY, Device, MemorySpace
from weft.runtime.devices.cpu.elf.loader import ObjectLibrary, loads_objects
from weft.runtime.devices.sim.description import SIM
from weft.runtime.library import NativeLibrary
from weft.runtime.manifest import MAIN_SYMBOL, Manifest, TargetSpec
from weft.support.errors import CodegenError
from weft.support.log import Level
from weft.target import CpuTarget

if TYPE_CHECKING:
    from weft.tir import PrimFunc


class CpuBackend(Backend[CpuTarget]):
    """LLVM, with objects in the format of the target's system."""

    kind: ClassVar[str] = "cpu"
    strategies: ClassVar[str] = "weft.strategy.cpu.families"
    cost_model_class: ClassVar[str] = "weft.strategy.cpu.estimate:CpuCostModel"
    takes_sizes: ClassVar[bool] = True
    instructions: ClassVar[str] = "weft.codegen.llvm.vector.dot_product:DOT_PRODUCTS"

    def build_kernel(self, func: PrimFunc, target: CpuTarget) -> bytes:
        from weft.codegen.llvm.build import build_object

        return build_object(func, target).object

    def kernel_key(self, func: PrimFunc, target: CpuTarget) -> str:
        """The LLVM IR, in which digests of Python bodies stand for these."""
        from weft.codegen.llvm.build import emit_own_llvm

        return f"{emit_own_llvm(func, target)}\n{target}"

    def callback_kernel(self, symbol: str, address: int, num_args: int, target: CpuTarget
                        ) -> bytes:
        from weft.codegen.llvm.build import build_text
        from weft.codegen.llvm.program_text import callback_text

        return build_text(symbol, callback_text(symbol, address, num_args, target), target).object

    def check_object(self, code: bytes, symbol: str, where: str) -> None:
        from weft.codegen.objects.symbols import object_symbols

        defined = {s.name for s in object_symbols(code) if s.is_defined}
        if symbol not in defined:
            raise CodegenError("an object of another code generator lacks its symbol", where=where,
                               expected=symbol, got=", ".join(sorted(defined)) or "no symbols")

    def build_main(self, program: LaunchProgram, target: CpuTarget) -> bytes | None:
        from weft.codegen.llvm.build import build_text
        from weft.codegen.llvm.program_text import main_text

        text = main_text(program, target)
        return build_text(MAIN_SYMBOL, text, target, externs=_kernels(program)).object

    def on_devices(self, devices: Sequence[Device]) -> CpuBackend:
        super().on_devices([one for one in devices if one.kind != SIM])  # raises for others
        return SimulatedDevices(devices) if devices else self

    def build_segments(self, segments: Mapping[str, LaunchProgram], target: CpuTarget) -> bytes:
        from weft.codegen.llvm.build import build_text
        from weft.codegen.llvm.program_text import functions_text

        kernels = frozenset().union(*map(_kernels, segments.values()))
        symbol = next(iter(segments), MAIN_SYMBOL)
        text = functions_text(segments, target)
        return build_text(symbol, text, target, externs=kernels).object

    def build_loop(self, symbol: str, program: LaunchProgram, target: CpuTarget, *,
                   has_workspace: bool) -> bytes:
        from weft.codegen.llvm.build import build_text
        from weft.codegen.llvm.program_text import kernel_text

        text = kernel_text(symbol, program, target, has_workspace=has_workspace)
        return build_text(symbol, text, target, externs=_kernels(program)).object

    def support_objects(self, target: CpuTarget) -> tuple[bytes, ...]:
        """The thread pool and what else ``weft.load`` calls, which runs where there is Linux."""
        if not target.platform.has_c_library:
            return ()
        from weft.codegen.llvm.runtime_support import build_runtime_support

        return (build_runtime_support(target).object,)

    def load(self, objects: Sequence[bytes], target: CpuTarget) -> NativeLibrary:
        if loads_objects():
            return ObjectLibrary(objects)
        from weft.codegen.llvm.jit import JitLibrary

        return JitLibrary(objects, target)

    def link(self, objects: Sequence[bytes], target: CpuTarget) -> bytes:
        """A shared library of the visible functions; ``LinkerError`` if no linker is found."""
        from weft.codegen.elf.linker import link_shared
        from weft.codegen.llvm.helpers.build import helper_objects
        from weft.codegen.objects.symbols import object_symbols

        helpers = helper_objects(objects, target, has_c_library=target.platform.has_c_library)
        exports = [s.name for code in objects for s in object_symbols(code)
                   if s.is_defined and s.is_global]
        return link_shared([*objects, *helpers], target.platform, exports)

    def c_object(self, name: str, manifest: Manifest, objects: Sequence[bytes],
                 constants: memoryview, target: CpuTarget) -> bytes:
        """A relocatable object that exports the functions of ``NAME.h`` alone."""
        from weft.codegen.elf.combine import combined
        from weft.codegen.llvm.build import build_text
        from weft.codegen.llvm.c_entry import WEIGHTS, c_entry_text, c_functions
        from weft.codegen.llvm.helpers.build import helper_objects

        functions = [f"{name}_{suffix}" for suffix in c_functions(manifest)]
        entry = build_text(functions[0], c_entry_text(name, manifest, target), target,
                           externs=frozenset((MAIN_SYMBOL, WEIGHTS))).object
        own = [entry, *objects]
        own += helper_objects(own, target, has_c_library=target.platform.has_c_library)
        return combined(own, (WEIGHTS, constants), functions, target.platform)

    def target_spec(self, target: CpuTarget) -> TargetSpec:
        return TargetSpec(target.triple, target.cpu, target.features)

    @property
    def text_stages(self) -> Mapping[str, TextStage[CpuTarget]]:
        from weft.codegen.llvm.build import emit_assembly, emit_llvm

        return {"llvm": TextStage("LLVM IR", "ll", ";", Level.LLVM, emit_llvm),
                "asm": TextStage("assembly", "s", "#", Level.ASSEMBLY, emit_assembly)}


class SimulatedDevices(CpuBackend):
    """Simulated devices and the host, which run at the same time, each in its own memory."""

    launched_by: ClassVar[str] = "lanes"

    def __init__(self, devices: Sequence[Device]) -> None:
        others = (one for one in devices if one != HOST)
        self.memory_spaces = (HOST_MEMORY, *(MemorySpace(str(one), one) for one in others))

    def build_main(self, program: LaunchProgram, target: CpuTarget) -> None:
        """The launcher runs segments of the program (``build_segments``) as data arrive."""


def _kernels(program: LaunchProgram) -> frozenset[str]:
    """The symbols that the launches of a program call."""
    return frozenset(symbol for launch in program.launches for symbol in (
        launch.symbol, *(variant.kernel for variant in launch.variants)))


CPU_BACKEND = CpuBackend()
register_backend(CPU_BACKEND)
