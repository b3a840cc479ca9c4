"""Errors of the CUDA driver as ``WeftError``, with the meaning of each status."""

from __future__ import annotations

from typing import ClassVar

from weft.support.errors import WeftError


class CudaError(WeftError):
    """A call of the CUDA driver failed. ``status`` is its ``CUresult``, 0 if it has none."""

    code: ClassVar[str] = "E0900"
    status = 0


class NoDeviceError(CudaError):
    """No driver, no device, or a device that cannot run the code."""

    code: ClassVar[str] = "E0901"


class DeviceMemoryError(CudaError):
    """The memory of a device is exhausted."""

    code: ClassVar[str] = "E0902"


class DeviceArrayError(CudaError):
    """A device array that was freed, lies on another device, or cannot be shared."""

    code: ClassVar[str] = "E0903"


OUT_OF_MEMORY = 2
NOT_READY = 600

# ``CUresult`` of cuda.h (CUDA 13.0), each with what usually causes it.
STATUS: dict[int, tuple[str, str]] = {
    1: ("CUDA_ERROR_INVALID_VALUE", "an argument of the driver call is invalid"),
    2: ("CUDA_ERROR_OUT_OF_MEMORY", "the memory of the device is exhausted"),
    3: ("CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised"),
    4: ("CUDA_ERROR_DEINITIALIZED", "the driver is shutting down"),
    34: ("CUDA_ERROR_STUB_LIBRARY", "libcuda is a stub without a driver"),
    46: ("CUDA_ERROR_DEVICE_UNAVAILABLE", "another process uses the device exclusively"),
    100: ("CUDA_ERROR_NO_DEVICE", "the driver finds no device"),
    101: ("CUDA_ERROR_INVALID_DEVICE", "no device has this number"),
    200: ("CUDA_ERROR_INVALID_IMAGE", "the code of the module is damaged"),
    201: ("CUDA_ERROR_INVALID_CONTEXT", "no context is current"),
    209: ("CUDA_ERROR_NO_BINARY_FOR_GPU", "the code was made for other architectures"),
    214: ("CUDA_ERROR_ECC_UNCORRECTABLE", "the memory of the device has an uncorrectable error"),
    218: ("CUDA_ERROR_INVALID_PTX", "the driver cannot compile the PTX"),
    221: ("CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the driver lacks its PTX compiler"),
    222: ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the driver is older than the PTX"),
    301: ("CUDA_ERROR_FILE_NOT_FOUND", "a file of the driver is missing"),
    304: ("CUDA_ERROR_OPERATING_SYSTEM", "a call of the operating system failed"),
    400: ("CUDA_ERROR_INVALID_HANDLE", "a stream, event, module or kernel does not exist"),
    500: ("CUDA_ERROR_NOT_FOUND", "the module does not define the symbol"),
    600: ("CUDA_ERROR_NOT_READY", "the work is not done"),
    700: ("CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed memory that is not allocated"),
    701: ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
          "a block needs more registers or shared memory than there are"),
    702: ("CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran longer than the display allows"),
    709: ("CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"),
    710: ("CUDA_ERROR_ASSERT", "an assertion failed in a kernel"),
    714: ("CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel's stack is corrupt"),
    715: ("CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel has an instruction that the device lacks"),
    716: ("CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed memory at a wrong alignment"),
    717: ("CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel accessed another kind of memory"),
    718: ("CUDA_ERROR_INVALID_PC", "a kernel's program counter left its code"),
    719: ("CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"),
    800: ("CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted"),
    801: ("CUDA_ERROR_NOT_SUPPORTED", "the device or driver does not support the operation"),
    802: ("CUDA_ERROR_SYSTEM_NOT_READY", "the fabric of the system is not initialised"),
    803: ("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "kernel module and libcuda have other versions"),
    900: ("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "a graph cannot record the operation"),
    901: ("CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an error ended the recording of a graph"),
    999: ("CUDA_ERROR_UNKNOWN", "an unknown error"),
}

# After these the context is unusable until the process ends.
_STICKY = frozenset({214, 700, 702, *range(709, 720)})
_HELP = {
    34: "install the NVIDIA driver; libcuda.so.1 on the path is that of the toolkit",
    100: "set WEFT_CUDA=emulate to run on the CPU, or check nvidia-smi",
    209: "compile for the architecture of the device, or export with PTX",
    218: "report the kernel with WEFT_DUMP_DIR set",
    222: "install a newer NVIDIA driver, or compile for it with an older PTX version",
    803: "reboot, or load the kernel module of the installed driver",
}


def is_sticky(status: int) -> bool:
    """Whether the context of the process stays unusable after this error."""
    return status in _STICKY


def status_error(status: int, doing: str, *, where: object = None,
                 notes: tuple[str, ...] = ()) -> CudaError:
    """The error of a driver call that returned ``status`` while ``doing`` something."""
    name, meaning = STATUS.get(status, (f"CUresult {status}", "an unknown error"))
    kind = DeviceMemoryError if status == OUT_OF_MEMORY else CudaError
    if status in (34, 46, 100, 101):
        kind = NoDeviceError
    if is_sticky(status):
        notes = (*notes, "the context of this process is unusable from now on")
    error = kind(f"{doing} failed: {meaning}", where=where, got=f"{name} ({status})", notes=notes,
                 help=_HELP.get(status))
    error.status = status
    return error
