"""No kernel touches the memory of another device."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.compiler.devices.placing import sims

SCRIPT = Path(__file__).with_name("guarded_program.py")


def run(tmp_path, *arguments):
    path = os.pathsep.join([str(Path(weft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], env=environment, check=False,
                          capture_output=True, text=True, timeout=120)


@pytest.mark.slow
def test_memory_of_other_devices_is_never_touched(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "done"


@pytest.mark.slow
def test_the_guard_notices_a_kernel_in_the_wrong_memory(tmp_path):
    assert run(tmp_path, "wrong").returncode == -signal.SIGSEGV


def test_devices_have_constants_of_their_own():
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 8)).astype(np.float32)
    x = weft.ir.expr.var("x", (8, 8))
    body = weft.op.nn.dense(weft.op.annotation.on_device(x, device="sim:1", constrain_body=False,
                                                         constrain_result=True),
                            weft.ir.expr.const(weight))
    mod = weft.compile(weft.Function((x,), body), devices=sims(2))
    values = np.eye(8, dtype=np.float32)
    expected = mod(values)
    mod.launcher.constants.flags.writeable = True
    mod.launcher.constants[:] = 0xFF
    np.testing.assert_array_equal(mod(values), expected)
    assert np.isfinite(expected).all()
