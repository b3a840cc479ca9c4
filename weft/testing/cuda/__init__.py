"""An emulator of CUDA kernels: it interprets PTX with NumPy, vectorised over threads.

It is adversarial. Memory, shared memory and registers start as poison (NaN), asynchronous copies
complete as late as allowed, blocks and atomics run in shuffled order. Accesses out of bounds,
misaligned or after a free, data races, mismatched barriers and endless loops are
``CudaEmulationError`` with kernel, source line, PTX line, block and thread.
"""

from weft.testing.cuda.counters import LaunchCounts, MemoryCounts
from weft.testing.cuda.device_memory import DeviceMemory
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.launch import EmulationOptions, launch, load_ptx
from weft.testing.cuda.ptx.module import PtxModule
from weft.testing.cuda.tensor_maps import encode_tensor_map

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
