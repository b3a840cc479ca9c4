"""Programs that no GPU can run, targets that do not exist, damaged kernel objects."""

from __future__ import annotations

import pytest

from tests.unit.cuda.codegen.emulated import compiled
from tests.unit.tir.gpu.gpu_programs import tiled_matmul
from weft import te
from weft.runtime.devices.cuda.image import MAGIC, KernelObject
from weft.support.errors import ArtifactError, CodegenError, LoweringError, TargetError
from weft.target import CudaTarget, Target
from weft.te.lower import lower
from weft.tir.func import PrimFunc


def bound(extents: dict[str, int]) -> PrimFunc:
    """An elementwise stage over axes bound to the tags of ``extents``."""
    shape = tuple(extents.values())
    a = te.placeholder(shape, name="A")
    b = te.compute(shape, lambda *i: a(*i) + 1.0, name="B")
    s = te.create_schedule(b)
    for axis, tag in zip(s[b].axis, extents, strict=True):
        s[b].bind(axis, tag)
    return lower(s, [a, b], "f")


@pytest.mark.parametrize(("extents", "message"), [
    ({"threadIdx.x": 2048}, "2048 threads in a block"),
    ({"threadIdx.y": 64, "threadIdx.x": 32}, "2048 threads in a block"),
    ({"threadIdx.z": 128}, "128 threads in a block"),
    ({"blockIdx.y": 70000}, "a grid of 70000 blocks"),
])
def test_launches_beyond_the_limits(extents: dict[str, int], message: str):
    with pytest.raises(CodegenError, match=message):
        compiled(bound(extents))


def shared_tile(elements: int) -> PrimFunc:
    a = te.placeholder((4, elements), name="A")
    b = te.compute((4, elements), lambda i, j: a[i, elements - 1 - j], name="B")
    s = te.create_schedule(b)
    tile = s.cache_read(a, "shared", [b])
    block, j = s[b].axis
    _, thread = s[b].split(j, factor=64)
    s[b].bind(block, "blockIdx.x")
    s[b].bind(thread, "threadIdx.x")
    s[tile].compute_at(s[b], block)
    _, thread = s[tile].split(s[tile].axis[1], factor=64)
    s[tile].bind(thread, "threadIdx.x")
    return lower(s, [a, b], "f")


def test_shared_memory_above_48_kib_is_dynamic_and_has_a_limit():
    assert compiled(shared_tile(64)).launches[0].shared_bytes == 0
    assert compiled(shared_tile(16 * 1024)).launches[0].shared_bytes == 64 * 1024
    with pytest.raises(CodegenError, match="bytes of shared memory in a block") as caught:
        compiled(shared_tile(50 * 1024))
    assert "166912" in str(caught.value.expected)
    large = compiled(shared_tile(50 * 1024), CudaTarget("sm_90"))
    assert large.launches[0].shared_bytes == 200 * 1024


def test_a_symbolic_number_of_threads():
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b)
    s[b].bind(s[b].axis[0], "threadIdx.x")
    with pytest.raises(LoweringError, match="the number of threads"):
        compiled(lower(s, [a, b], "f"))


@pytest.mark.parametrize(("text", "message"), [
    ("cuda -arch=sm_75", "unknown CUDA architecture 'sm_75'"),
    ("cuda -codegen=nvcc", "unknown compiler from LLVM IR to PTX: 'nvcc'"),
    ("cuda -mcpu=sm_80", "unknown option '-mcpu=sm_80'"),
])
def test_unknown_targets(text: str, message: str):
    with pytest.raises(TargetError, match=message):
        Target.of(text)


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_targets_round_trip_and_stay_within_the_ptx_of_driver_580(arch: str):
    target = Target.of(f"cuda -arch={arch} -codegen=nvvm")
    assert Target.of(str(target)) == target
    assert isinstance(target, CudaTarget)
    assert target.ptx_version <= (9, 0)


def test_damaged_kernel_objects():
    image = compiled(tiled_matmul())
    assert KernelObject.from_bytes(image.to_bytes()) == image
    for data, message in (
        (b"ELF" + image.to_bytes(), "not a CUDA kernel object"),
        (image.to_bytes()[:-10], "a damaged CUDA kernel object"),
        (MAGIC + b'{"symbol": 1}', "a damaged CUDA kernel object"),
        (image.to_bytes().replace(b'"parameter"', b'"password"'), "a damaged CUDA kernel object"),
    ):
        with pytest.raises(ArtifactError, match=message):
            KernelObject.from_bytes(data)
