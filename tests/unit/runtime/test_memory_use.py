"""``mod.memory()``: what a module keeps, in bytes that can be counted otherwise."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.compiler.program import packing
from weft.runtime.arena import AlignedBlock
from weft.runtime.memory_use import MemoryUse

ROWS = 64 << 10
SUMS = f"""
def @main(%x: Tensor[({ROWS}), float32], %sum: Tensor[({ROWS}), float32]) {{
  %new = add(%sum, %x);
  (multiply(%new, %x), %new)
}}"""
needs_pages = pytest.mark.skipif(not Path("/proc/self/pagemap").exists(), reason="needs /proc")


def dense(path: Path) -> weft.Executable:
    """A module with a weight of 256 KB, from a file, because those alone are kept in the cache."""
    weight = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    x = weft.ir.Var("x", weft.ir.TensorType((4, 256), weft.ir.DType.of(weight.dtype)))
    call = weft.op.nn.dense(x, weft.ir.Constant(weight))
    path.write_text(str(weft.ir.IRModule.from_expr(weft.ir.Function((x,), call))))
    return weft.compile(path)


@needs_pages
def test_large_weights_are_mapped_from_the_cache(
        tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MAPPED_BYTES", 0)
    monkeypatch.setenv("WEFT_VERIFY", "0")  # models that are verified are not kept
    module = dense(tmp_path / "m.weft.txt")
    weights = module.memory()["weights"]
    assert weights.nbytes == module.manifest.constants_bytes >= 256 * 256 * 4
    assert weights.file is not None
    assert weights.file.startswith(str(own_cache))
    assert weights.file in module.memory().table()
    module(np.ones((4, 256), np.float32))
    assert weights.nbytes <= (module.memory()["weights"].resident or 0) <= weights.nbytes + 8192


def test_states_arenas_and_results_to_reuse_are_counted() -> None:
    module = weft.compile(weft.parse(SUMS), state={"output1": "sum"})
    x = np.ones(ROWS, np.float32)
    for _ in range(3):
        module(x)
    gc.collect()
    use = module.memory()
    assert use["states"].nbytes == 4 * ROWS
    assert use["states"].file is None
    assert 4 * ROWS <= use["results to reuse"].nbytes < 8 * ROWS
    assert use["code"].nbytes > 0
    assert use.nbytes == sum(row.nbytes for row in use.rows)
    assert str(use).splitlines()[-1].startswith("all")
    with pytest.raises(KeyError):
        use["weights"]


@needs_pages
def test_pages_that_were_not_touched_are_not_in_ram() -> None:
    block = AlignedBlock(64 << 20)
    row = MemoryUse.of({"block": [(block.address, block.nbytes)] * 2})["block"]
    assert (row.nbytes, row.resident) == (64 << 20, 0)
    block.array[: 4 << 20] = 1
    row = MemoryUse.of({"block": [(block.address, block.nbytes)]})["block"]
    assert row.resident == 4 << 20
    assert row.shared == 0


def test_programs_for_sizes_are_counted() -> None:
    x = "Tensor[(n, 32), float32]"
    module = weft.compile(weft.parse(f"def @main(%x: {x}) {{ nn.softmax(%x) }}"),
                          symbolic_sizes=False)
    assert not module.memory().rows
    module(np.ones((3, 32), np.float32))
    one = module.memory()["code"].nbytes
    module(np.ones((4, 32), np.float32))
    assert module.memory()["code"].nbytes > one
