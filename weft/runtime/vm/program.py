"""A program for the virtual machine: functions of bytecode, and the kernels that they call."""

from __future__ import annotations

from dataclasses import dataclass

from weft.runtime.vm.bytecode import Instruction

ENTRY = "main"


@dataclass(frozen=True, slots=True)
class TensorForm:
    """Dtype and shape of a tensor that a kernel writes."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VmKernel:
    """A kernel in machine code, or one whose sizes are open and which ``source`` describes.

    ``source`` is the text of the primitive function, from which code is made for the sizes at
    hand; it is empty where ``symbol`` names code that exists. ``op`` is the text of the operators,
    ``flops`` and ``bytes_moved`` are of one call.

    Sizes may depend on data in two ways. The code counts some: it writes the results at their
    largest (``outputs``), then the counts; ``(result, axis, which)`` in ``counted`` says that
    count number ``which`` is the true size of that axis. The arguments in ``value_args`` are
    shapes and the like: code is made for their values. ``input_shapes`` are what the code was
    made for; empty where it does not exist yet.
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
class VmFunction:
    """``num_captured`` values and ``num_params`` arguments arrive in the first registers."""

    name: str
    num_captured: int
    num_params: int
    num_registers: int
    code: tuple[Instruction, ...]

    @property
    def num_entry(self) -> int:
        """The registers that have a value when the function begins."""
        return self.num_captured + self.num_params


@dataclass(frozen=True, slots=True)
class VmProgram:
    """``entry`` takes the module's inputs and gives its outputs, each a flat tuple of tensors.

    With ``returns_value`` the result is no such tuple but one value of any type without functions
    and references.
    """

    functions: tuple[VmFunction, ...]
    kernels: tuple[VmKernel, ...]
    entry: int
    returns_value: bool = False

    @property
    def has_dynamic_kernels(self) -> bool:
        return any(kernel.is_dynamic for kernel in self.kernels)
