"""Programs for the virtual machine: bytecode functions and the kernels that they call."""

from __future__ import annotations

from weft.runtime.vm.bytecode import Instruction
from weft.support.dataclass import dataclass

ENTRY = "main"


@dataclass(frozen=True, slots=True)
class TensorForm:
    """Dtype and shape of a kernel output."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VmKernel:
    """A compiled kernel, or one with dynamic shapes that ``source`` describes.

    ``source`` is the text of the primitive function, which is compiled for the shapes of its
    arguments at run time; it is empty if ``symbol`` names compiled code. ``op`` is the text of the
    operators; ``flops`` and ``bytes_moved`` are per call. ``input_shapes`` are the argument shapes
    of compiled code, empty if there is none yet.

    Shapes may depend on data in two ways. A kernel may count: it writes ``outputs`` of the maximum
    size, and an array of counts. An entry ``(result, axis, which)`` of ``counted`` says that count
    ``which`` is the true size of that axis. The arguments ``value_args`` hold shapes and similar
    values, for which the kernel is specialised.
    """

    symbol: str
    num_inputs: int
    outputs: tuple[TensorForm, ...] = ()
    workspace_bytes: int = 0
    implementation: str = ""
    op: str = ""
    flops: int = 0
    bytes_moved: int = 0
    source: str = ""
    input_shapes: tuple[tuple[int, ...], ...] = ()
    counted: tuple[tuple[int, int, int], ...] = ()
    value_args: tuple[int, ...] = ()

    @property
    def num_counts(self) -> int:
        return 1 + max((which for _, _, which in self.counted), default=-1)

    @property
    def is_dynamic(self) -> bool:
        return bool(self.source)


@dataclass(frozen=True, slots=True)
class SpecialKernel:
    """Compiled code of kernel ``number``, which has dynamic shapes, for one set of arguments.

    ``shapes`` are those of the arguments, ``values`` the bytes of ``VmKernel.value_args`` in hex.
    """

    number: int
    shapes: tuple[tuple[int, ...], ...]
    values: tuple[str, ...]
    kernel: VmKernel


@dataclass(frozen=True, slots=True)
class SymbolicKernel:
    """Compiled code of kernel ``number``, which has dynamic shapes, for all that ``text`` permits.

    ``text`` is the JSON form of a ``Manifest``. Its one step names the symbol and the work of the
    kernel, its inputs are the arguments, its arena is the workspace, and its ``sizes`` are the
    scalar parameters, which follow the results. ``counted`` is that of ``VmKernel``.
    """

    number: int
    text: str
    counted: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class VmFunction:
    """A function; its first registers hold the captured values, then the arguments."""

    name: str
    num_captured: int
    num_params: int
    num_registers: int
    code: tuple[Instruction, ...]

    @property
    def num_entry(self) -> int:
        """The registers that hold a value at function entry."""
        return self.num_captured + self.num_params


@dataclass(frozen=True, slots=True)
class VmProgram:
    """A program. ``entry`` takes the inputs of the module and returns a flat tuple of tensors.

    With ``returns_value`` it returns a single value of any type without functions and references.
    ``special`` are the kernels with dynamic shapes that are compiled for some sizes, ``symbolic``
    those that are compiled for all.
    """

    functions: tuple[VmFunction, ...]
    kernels: tuple[VmKernel, ...]
    entry: int
    returns_value: bool = False
    special: tuple[SpecialKernel, ...] = ()
    symbolic: tuple[SymbolicKernel, ...] = ()

    @property
    def has_dynamic_kernels(self) -> bool:
        return any(kernel.is_dynamic for kernel in self.kernels)
