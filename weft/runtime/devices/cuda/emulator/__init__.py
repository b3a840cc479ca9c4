"""An emulator of CUDA kernels: it interprets PTX with NumPy, vectorised over threads.

It is adversarial. Memory, shared memory and registers start as poison (NaN), asynchronous copies
complete as late as allowed, blocks and atomics run in shuffled order. Accesses out of bounds,
misaligned or after a free, data races, mismatched barriers and endless loops are
``CudaEmulationError`` with kernel, source line, PTX line, block and thread.
"""

from weft.runtime.devices.cuda.emulator.counters import LaunchCounts, MemoryCounts
from weft.runtime.devices.cuda.emulator.device_memory import DeviceMemory
from weft.runtime.devices.cuda.emulator.errors import CudaEmulationError
from weft.runtime.devices.cuda.emulator.launch import EmulationOptions, launch, load_ptx
from weft.runtime.devices.cuda.emulator.ptx import PtxModule
from weft.runtime.devices.cuda.emulator.tensor_maps import encode_tensor_map

__all__ = [
    "CudaEmulationError",
    "DeviceMemory",
    "EmulationOptions",
    "LaunchCounts",
    "MemoryCounts",
    "PtxModule",
    "encode_tensor_map",
    "launch",
    "load_ptx",
]
