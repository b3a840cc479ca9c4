"""The LLVM module of a kernel object: one entry function per launch.

Parameters of an entry, in this order: the buffers in global memory (tensors, then parts of the
workspace), the sizes as integers, the tensor maps by value. ``DeviceKernel.arguments`` says what
the launcher passes for each. Address spaces are those of NVPTX (LLVM, "User Guide for NVPTX"): 1
global, 3 shared, 5 local; ``alloca`` stays generic, and LLVM infers 5.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.cuda.emit.calls import CUDA_CALLS, PARAMETER, map_spec, tensor_maps_of
from weft.codegen.cuda.emit.debug_lines import DebugLines
from weft.codegen.cuda.emit.stmt import CUDA_STATEMENTS, access_alignment
from weft.codegen.cuda.foreign_kernels import check_kernel, foreign_argument, foreign_launch
from weft.codegen.ir_text.emit.expr import EMITTERS
from weft.codegen.ir_text.emit.state import AliasScopes, FunctionState, Kernel
from weft.codegen.ir_text.emit.stmt import emit_stmt
from weft.codegen.ir_text.types import value_type
from weft.codegen.ir_text.writer import FunctionWriter, ModuleWriter
from weft.codegen.uses import Uses, collect_uses
from weft.ir import int64
from weft.runtime.devices.cuda.image import Argument, DeviceKernel, TensorMapSpec
from weft.runtime.sizes import Size
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError
from weft.support.interpreter import deep_recursion
from weft.target import CudaTarget
from weft.tir import Buffer, BufferLoad, PrimExpr, PrimFunc, Var, int_value, substitute
from weft.tir.foreign_kernel import ForeignKernel
from weft.tir.python_function import functions_of
from weft.tir.size_text import size_text
from weft.tir.transform.gpu.split_host_device import Launch, launches_of

_SPACES = {"shared": "ptr addrspace(3)", "local": "ptr"}
# PTX ISA, "Special Registers": %ctaid is the block in the grid, %tid the thread in the block.
_SPECIAL_REGISTERS = {"blockIdx": "ctaid", "threadIdx": "tid"}
# That of LLVM's nvptx64; libnvvm has its own (``nvvm_dialect``).
DATA_LAYOUT = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"


@dataclass(frozen=True, slots=True)
class DeviceModule:
    """LLVM IR with the kernels that it defines, in the order of their launches."""

    text: str
    kernels: tuple[DeviceKernel, ...]
    sizes: tuple[str, ...]
    tensor_maps: tuple[TensorMapSpec, ...] = ()


def write_device_module(func: PrimFunc, target: CudaTarget) -> DeviceModule:
    """LLVM IR of a lowered function: entry ``NAME`` or, for several launches, ``NAME_0`` and so on.

    Raises ``CodegenError`` for a launch beyond the limits of the architecture.
    """
    module = ModuleWriter(func.name, target)
    module.metadata("!{}")  # !0: the empty node that !invariant.load refers to
    launches = launches_of(func)
    names, lines = _size_names(func), DebugLines(module, func)
    kernels, maps = [], list[TensorMapSpec]()
    for number, launch in enumerate(launches):
        entry = func.name if len(launches) == 1 else f"{func.name}_{number}"
        with deep_recursion():
            writer = _Entry(module, func, target, launch, entry, names, maps, lines)
            foreign = foreign_launch(func, launch.body)
            kernels.append(writer.write() if foreign is None else writer.foreign(*foreign))
    return DeviceModule(module.text(DATA_LAYOUT), tuple(kernels), tuple(names.values()),
                        tuple(maps))


def _size_names(func: PrimFunc) -> dict[Var, str]:
    """The scalar parameters, in order, under the names that sizes of the image use."""
    scalars = [p for p in func.params if isinstance(p, Var)]
    return {var: f"s{number}" for number, var in enumerate(scalars)}


class _Entry:
    """Writes one entry function."""

    def __init__(self, module: ModuleWriter, func: PrimFunc, target: CudaTarget, launch: Launch,
                 entry: str, sizes: dict[Var, str], maps: list[TensorMapSpec],
                 lines: DebugLines) -> None:
        self.module, self.func, self.target = module, func, target
        self.maps = maps  # of all launches
        self.launch, self.entry, self.sizes = launch, entry, sizes
        self.subprogram = lines.subprogram(entry)
        self.locations = lines.locations(self.subprogram)
        self.uses: Uses = collect_uses(launch.body)
        self.offsets: dict[Buffer, int | PrimExpr] = {
            b: o for b, o in func.attrs.get("workspace_offsets", {}).items()
            if b in self.uses.buffers}
        self.shared: dict[Buffer, int] = {
            b: o for b, o in func.attrs.get("shared_offsets", {}).items() if b in self.uses.buffers}
        self.shared_bytes = max((o + (b.static_bytes or 0) for b, o in self.shared.items()),
                                default=0)

    def write(self) -> DeviceKernel:
        self._check()
        state = FunctionState(self._kernel(), FunctionWriter(self.module))
        state.out.location = self.locations[0]
        params, arguments = self._parameters(state)
        self._shared_pointers(state)
        for tag, var in self.launch.axes.items():
            state.memo.bind(var, self._special_register(state, tag, var))
            state.note_range(var, nonnegative=True)
        emit_stmt(state, self.launch.body)
        state.out.do("ret void")
        threads = ",".join(map(str, self.launch.block))
        header = (f"define ptx_kernel void @{self.entry}({', '.join(params)}) nounwind "
                  f'"nvvm.reqntid"="{threads}" !dbg {self.subprogram}')
        self.module.functions.append(state.out.text(header))
        x, y, z = (self._size(n) for n in self.launch.grid)
        dynamic = self.shared_bytes if self._is_dynamic else 0
        return DeviceKernel(self.entry, (x, y, z), self.launch.block, tuple(arguments), dynamic)

    def foreign(self, kernel: ForeignKernel, operands: Sequence[PrimExpr]) -> DeviceKernel:
        """The launch of a kernel of another compiler, whose code is added later."""
        self.entry = kernel.entry
        self._check()
        check_kernel(kernel, self.target)
        indices = {p: i for i, p in enumerate(self.func.params)}

        def address(element: BufferLoad) -> Argument:
            buffer = element.buffer
            if buffer in self.offsets:
                return "workspace", self._size(self.offsets[buffer])
            return "parameter", indices[buffer]

        arguments = tuple(foreign_argument(o, address, self._size) for o in operands)
        x, y, z = (self._size(n) for n in self.launch.grid)
        return DeviceKernel(kernel.symbol, (x, y, z), self.launch.block, arguments,
                            kernel.shared_bytes)

    @property
    def _is_dynamic(self) -> bool:
        """Whether the block needs more than the 48 KiB that a static array may have.

        More shared memory is an array without a size, whose bytes the launch gives after the kernel
        has opted in (CUDA C++ Programming Guide, compute capabilities: "Shared Memory").
        """
        return self.shared_bytes > self.target.static_shared_bytes

    def _kernel(self) -> Kernel:
        memory = self._memory()
        written = self.uses.written
        return Kernel(
            name=self.entry, module=self.module, written=written,
            local_accesses=self.uses.local_accesses,
            alias=AliasScopes(self.module, [*memory, *self.shared], self._byte_ranges()),
            workspace_offsets=self.offsets, task_scratch={}, has_sizes=bool(self.sizes),
            attributes="nounwind", emitters=EMITTERS, statements=CUDA_STATEMENTS, calls=CUDA_CALLS,
            pointer_type=lambda b: _SPACES.get(b.scope, "ptr addrspace(1)"),
            alignment=access_alignment,
            read_only={b: None for b in memory if b not in written},
            bodies=functions_of(self.func), has_masks=False, locations=self.locations,
            # ptxas unrolls short loops, so that a thread has several loads in flight.
            unrolls=True)

    def _memory(self) -> list[Buffer]:
        """The buffers in global memory that the launch accesses: parameters, then workspace."""
        own = [p for p in self.func.params if isinstance(p, Buffer) and p in self.uses.buffers]
        return [*own, *self.offsets]

    def _byte_ranges(self) -> dict[Buffer, int | PrimExpr]:
        """Where buffers may overlap: in shared memory, which buffers reuse."""
        return dict(self.shared)

    def _parameters(self, state: FunctionState) -> tuple[list[str], list[Argument]]:
        params: list[str] = []
        arguments: list[Argument] = []
        indices = {p: i for i, p in enumerate(self.func.params)}
        for buffer in self._memory():
            name = f"%p{len(params)}"
            state.pointers[buffer] = name
            access = "" if buffer in self.uses.written else " readonly"
            # Not aligned: LLVM would join scalar loads to wide ones that end behind the tensor.
            params.append(f"ptr addrspace(1) noalias{access} {name}")
            if buffer in self.offsets:
                arguments.append(("workspace", self._size(self.offsets[buffer])))
            else:
                arguments.append(("parameter", indices[buffer]))
        for var, text in self.sizes.items():
            name = f"%p{len(params)}"
            state.memo.add(var, name)
            state.note_range(var, nonnegative=True)
            params.append(f"{value_type(var.dtype)} {name}")
            arguments.append(("size", text))
        for call in tensor_maps_of(self.launch.body):
            name = f"%p{len(params)}"
            state.memo.add(call, name)
            params.append(f"{PARAMETER} {name}")
            arguments.append(("tensor_map", len(self.maps)))
            self.maps.append(map_spec(call, self.func))
        return params, arguments

    def _shared_pointers(self, state: FunctionState) -> None:
        """One array for all shared memory, in which each buffer has an offset."""
        if not self.shared:
            return
        name = f"@{self.entry}_shared"
        if self._is_dynamic:
            # 1024 is the alignment that TMA and wgmma ask of tiles with the 128-byte swizzle.
            array = f"{name} = external addrspace(3) global [0 x i8], align 1024"
        else:
            array = (f"{name} = internal addrspace(3) global [{self.shared_bytes} x i8] undef, "
                    "align 128")
        self.module.globals.append(array)
        for buffer, offset in self.shared.items():
            state.pointers[buffer] = state.out.emit(
                f"getelementptr inbounds i8, ptr addrspace(3) {name}, i32 {offset}")

    def _special_register(self, state: FunctionState, tag: str, var: Var) -> str:
        name, axis = tag.split(".")
        register = f"llvm.nvvm.read.ptx.sreg.{_SPECIAL_REGISTERS[name]}.{axis}"
        callee = self.module.declare(register, "i32 @()")
        value = state.out.emit(f"call i32 {callee}()")
        if var.dtype is int64:  # an index is below 2**31: no sign to extend
            return state.out.emit(f"zext i32 {value} to i64")
        return value

    def _size(self, e: PrimExpr | int) -> Size:
        if isinstance(e, int):
            return e
        return size_text(substitute(e, {v: Var(text) for v, text in self.sizes.items()}))

    def _check(self) -> None:
        launch, target = self.launch, self.target
        if launch.threads > target.max_threads or any(
                n > most for n, most in zip(launch.block, target.max_block, strict=True)):
            raise CodegenError(
                f"{launch.threads} threads in a block", where=self.entry,
                expected=f"at most {target.max_threads} on {target.arch}, and 64 along z",
                got=launch.block, help="split the loops that are bound to threadIdx")
        for extent, most in zip(launch.grid, target.max_grid, strict=True):
            blocks = int_value(extent)
            if blocks is not None and blocks > most:
                raise CodegenError(f"a grid of {blocks} blocks", where=self.entry,
                                   expected=f"at most {most}",
                                   help="bind the loop to blockIdx.x, or let a thread compute more")
        if self.shared_bytes > target.shared_bytes:
            raise CodegenError(
                f"{self.shared_bytes} bytes of shared memory in a block", where=self.entry,
                expected=f"at most {target.shared_bytes} on {target.arch}",
                got=", ".join(f"{b.name}: {b.static_bytes}" for b in self.shared),
                help="use smaller tiles or fewer pipeline stages")
