"""Weights in blocks that are mapped from a file: in memory once, as stored, and never as floats."""

from __future__ import annotations

import json
import mmap
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.program import packing
from weft.support.file_content import mapped_file
from weft.topi.nn.block_formats import block_format

FORMAT = "q4_0"
ROWS, DEPTH = 4096, 14336
FORM = block_format(FORMAT)
BLOCK_BYTES = ROWS * FORM.row_bytes(DEPTH)

_CHILD = f"""
import json, mmap, sys
import numpy as np
import weft
from weft import ir, op

def kilobytes(*names):
    with open("/proc/self/status") as lines:
        found = dict(line.split(":", 1) for line in lines)
    return [int(found[name].split()[0]) for name in names]

def resident(path):
    total, inside = 0, False
    with open("/proc/self/smaps") as lines:
        for line in lines:
            head = line.split()[0]
            if not head.endswith(":"):
                inside = line.rstrip().endswith(path)
            elif head == "Rss:" and inside:
                total += int(line.split()[1])
    return total

with open(sys.argv[1], "rb") as file:
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
weight = ir.Constant(np.frombuffer(pages, np.uint8).reshape({ROWS}, -1))
x = ir.var("x", ("rows", {DEPTH}), "float32")
y = op.nn.block_quantized_dense(x, weight, format="{FORMAT}", activations=sys.argv[2])
before, = kilobytes("VmRSS")
model = weft.compile(ir.IRModule.from_expr(ir.Function((x,), y)))
for rows in (1, 6):
    model(np.ones((rows, {DEPTH}), np.float32))
peak, anonymous = kilobytes("VmHWM", "RssAnon")
print(json.dumps(dict(before=before, peak=peak, anonymous=anonymous, file=resident(sys.argv[1]))))
"""


@pytest.mark.parametrize("activations", ["float32", "int8"])
def test_a_model_holds_mapped_blocks_once_and_no_floats_of_them(activations: str, tmp_path: Path
                                                                ) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(BLOCK_BYTES))
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path / "cache"), "WEFT_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", _CHILD, str(path), activations],
                          env=environment, check=True, capture_output=True, text=True)
    found = {name: 1024 * kilobytes for name, kilobytes in json.loads(done.stdout).items()}
    floats = 4 * ROWS * DEPTH
    compiler = 120 << 20
    assert compiler + 2 * BLOCK_BYTES < floats  # so that the bounds below can tell
    assert found["peak"] - found["before"] < compiler + 2 * BLOCK_BYTES
    assert found["file"] < BLOCK_BYTES // 10
    assert found["anonymous"] < found["before"] + compiler


def test_large_weights_that_are_mapped_stay_on_disk(tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_UNHINDERED", 1 << 40)
    size = 2 * packing._MAPPED_BYTES
    path = tmp_path / "weights"
    path.write_bytes(bytes(size))
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped = np.frombuffer(pages, np.uint8)[8:]
    assert mapped_file(mapped) is pages
    assert mapped_file(np.zeros(3)) is None
    assert packing._is_mapped(size, [mapped])
    assert not packing._is_mapped(size, [np.zeros(size, np.uint8)])
