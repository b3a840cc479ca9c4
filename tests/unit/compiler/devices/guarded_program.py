"""Runs a program on simulated devices while the memory of all other devices cannot be touched.

A process of its own, because a kernel that reads or writes the memory of another device ends it
with a segmentation fault. With the argument ``wrong``, one device gets the arena of another.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import threading

import numpy as np

import weft
from weft.runtime import arena
from weft.runtime.device import HOST
from weft.runtime.devices.sim import memory as sim_memory
from weft.runtime.devices.sim.program import SimRun

PAGE = mmap.PAGESIZE
NOTHING, ALL = 0, mmap.PROT_READ | mmap.PROT_WRITE
TEXT = """
def @main(%x: Tensor[(32, 32), float32], %w: Tensor[(32, 32), float32]) {
  let %a = annotation.on_device(nn.relu(nn.dense(%x, %w)), device="sim:0");
  let %b = annotation.on_device(tanh(nn.dense(%a, %w)), device="sim:1");
  let %c = annotation.on_device(nn.softmax(add(%a, %b)), device="cpu");
  let %d = annotation.on_device(nn.dense(multiply(%c, CONSTANT), %b), device="sim:0");
  add(%d, %a)
}"""
libc = ctypes.CDLL(None, use_errno=True)


class PageBlock:
    """As ``AlignedBlock``, in pages that hold nothing else."""

    def __init__(self, nbytes, alignment=64, purpose=None):
        self.nbytes = nbytes
        self.size = -(-max(nbytes, 1) // PAGE) * PAGE
        self._map = mmap.mmap(-1, self.size)
        whole = np.frombuffer(self._map, np.uint8)
        self.array = whole[:nbytes]
        self.address = whole.ctypes.data


def protect(address, nbytes, how):
    assert libc.mprotect(ctypes.c_void_p(address), ctypes.c_size_t(-(-nbytes // PAGE) * PAGE),
                         how) == 0


def page_array(shape):
    block = PageBlock(int(np.prod(shape)) * 4)
    return block.array.view(np.float32).reshape(shape), block


def main():
    arena.AlignedBlock = sim_memory.AlignedBlock = PageBlock
    model = weft.parse(TEXT.replace("CONSTANT", "0.5f"))
    mod = weft.compile(model, devices=["sim:0", "sim:1", "cpu"])
    arrays = [page_array((32, 32)) for _ in range(3)]
    (x, _), (w, _), (out, _) = arrays
    rng = np.random.default_rng(0)
    x[...], w[...] = rng.standard_normal((2, 32, 32))
    expected = weft.compile(model, devices=["sim:0"], soft_placement=True)(x, w)
    lock, run_segment = threading.Lock(), SimRun.run_segment

    def guarded(self, segment, call):
        """One segment at a time, with the memory of its devices alone."""
        memories = self._memory.memories
        owned = {device: [(block.address, block.size) for block in pool._blocks.values()]
                 for device, pool in memories.pools.items()}
        owned[HOST] += [(block.address, block.size) for _, block in arrays]
        for device, block in memories._blocks.items():
            if device != HOST:
                owned[device].append((block.ctypes.data, block.nbytes))
        others = [part for device, parts in owned.items() if device not in segment.worker
                  for part in parts]
        with lock:
            for part in others:
                protect(*part, NOTHING)
            run_segment(self, segment, call)
            for part in others:
                protect(*part, ALL)

    SimRun.run_segment = guarded
    if "wrong" in sys.argv:
        acquire = sim_memory.CallMemory.acquire

        def swapped(self, nbytes):
            acquire(self, nbytes)
            first, second, *_ = (device for device in self.arenas if device != HOST)
            self.arenas[first], self.arenas[second] = self.arenas[second], self.arenas[first]

        sim_memory.CallMemory.acquire = swapped
    for _ in range(2):
        mod(x, w, out=out)
        assert out.tobytes() == expected.tobytes()
    kernels = {str(call.device) for call in mod.manifest.steps if call.symbol != "device_copy"}
    assert kernels == {"sim:0", "sim:1", "cpu:0"}, kernels
    print("done")


if __name__ == "__main__":
    main()
