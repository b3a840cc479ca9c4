"""The kernels that programs spend their time in: counted under emulation, assembled by ptxas.

Per family: the share of the moved sectors that is used, bank conflicts, 128-bit accesses, and no
registers spilled to memory on sm_80 and sm_90a.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.unit.cuda.strategy.nests import A100, H100, check_run
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.codegen.cuda.build import build_kernel_object
from weft.codegen.cuda.ptxas import assemble
from weft.codegen.cuda.toolkit import find_program
from weft.ir.expr import var
from weft.strategy import lower_function
from weft.strategy.cuda.machine_model import machine_model

X, ROW, BIAS = var("x", (128, 1024)), var("r", (1024,)), var("b", (1024,))
HALF, PLANES = var("h", (256, 1024), "float16"), var("p", (4, 16, 32, 32))
CUBE, LONG = var("c", (2, 96, 160)), var("l", (8, 4096))


@dataclass(frozen=True, slots=True)
class Hot:
    """A kernel; the least share of moved bytes that it uses; the most bytes that it moves, as a
    multiple of its operands and results; what its PTX has.
    """

    params: tuple
    body: object
    used: float = 1.0
    moved: float = 1.01
    vectors: bool = True
    launches: int = 1


KERNELS = {
    "relu": Hot((X,), op.nn.relu(X)),
    "relu float16": Hot((HALF,), op.nn.relu(HALF)),
    # Each row of the result reads the row or the scale that all rows share: from L1.
    "broadcast": Hot((X, ROW), op.add(X, ROW), moved=1.5),
    # The rows once, and the coefficients of the exponentials.
    "softmax": Hot((X,), op.nn.softmax(X), moved=1.5),
    "layer norm": Hot((X, ROW, BIAS), op.nn.layer_norm(X, ROW, BIAS), moved=2.0),
    "rms norm": Hot((X, ROW), op.nn.rms_norm(X, ROW), moved=1.5),
    "sum of rows": Hot((X,), op.sum(X, axis=(1,)), used=0.97, moved=1.04),
    "sum of columns": Hot((X,), op.sum(X, axis=(0,)), vectors=False),
    "sum of all": Hot((X,), op.sum(X), used=0.97, moved=1.04, launches=2),
    "argmax": Hot((X,), op.argmax(X, axis=(1,)), used=0.97, moved=1.04),
    "softmax of channels": Hot((PLANES,), op.nn.softmax(PLANES, axis=1), vectors=False, moved=1.8),
    "transpose": Hot((CUBE,), op.transpose(CUBE, axes=(0, 2, 1)), vectors=False),
    "channels last": Hot((PLANES,), op.transpose(PLANES, axes=(0, 2, 3, 1)), vectors=False),
    "global pool": Hot((PLANES,), op.nn.global_avg_pool2d(PLANES), used=0.9, moved=1.1),
    "cumsum": Hot((LONG,), op.cumsum(LONG, axis=1), vectors=False),
}
TABLE = pytest.mark.parametrize("name", KERNELS)


@pytest.mark.sample(0.4)
@TABLE
def test_accesses_are_coalesced_and_free_of_bank_conflicts(name):
    hot = KERNELS[name]
    run = check_run(primitive(hot.params, hot.body), rtol=2e-3, count=True)
    assert len(run.counts) == hot.launches
    moved = sum(c.total("bytes_moved") for c in run.counts)
    assert sum(c.total("bytes_used") for c in run.counts) >= hot.used * moved
    least = sum(a.nbytes for a in run.arrays)
    assert moved <= hot.moved * least
    assert sum(c.total("conflicts", "shared") for c in run.counts) == 0
    assert (".v4." in run.image.ptx) == hot.vectors


@pytest.mark.sample(0.4)
@TABLE
@pytest.mark.parametrize("target", [A100, H100], ids=["sm_80", "sm_90a"])
@pytest.mark.skipif(find_program("ptxas") is None, reason="ptxas of the CUDA toolkit is absent")
def test_no_kernel_spills_registers(name, target):
    hot = KERNELS[name]
    func = lower_function(primitive(hot.params, hot.body), target).func
    image = build_kernel_object(func, target)
    found = assemble(image.ptx, target.arch).resources
    model = machine_model(target)
    for kernel in image.launches:
        used = found[kernel.entry]
        assert used.spill_stores == used.spill_loads == 0
        x, y, z = kernel.block
        # Few registers: the memory-bound kernels have half of the warps of an SM at least.
        shared = used.shared_bytes + kernel.shared_bytes
        threads = max(32, x * y * z)
        if threads >= 128:
            assert model.occupancy(threads, used.registers, shared).fraction >= 0.5, used
