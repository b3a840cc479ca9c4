"""Programs in StableHLO's text compute what NumPy does, without jax."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.frontend.stablehlo.programs import PROGRAMS, Program
from weft.frontend.stablehlo import from_stablehlo


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_a_program_computes_what_numpy_does(program: Program):
    results = weft.compile(from_stablehlo(program.text))(*program.inputs)
    got = results if isinstance(results, tuple) else (results,)
    meant = program.meant(*program.inputs)
    wanted = meant if isinstance(meant, tuple) else (meant,)
    for found, right in zip(got, wanted, strict=True):
        assert found.shape == np.shape(right)
        np.testing.assert_allclose(found, right, rtol=program.tolerance, atol=program.tolerance)


def test_a_file_is_compiled_by_its_suffix(tmp_path: Path):
    program = PROGRAMS[0]
    for suffix in ("mlir", "stablehlo"):
        path = tmp_path / f"add.{suffix}"
        path.write_text(program.text)
        module = weft.compile(path)
        np.testing.assert_array_equal(module(*program.inputs), program.meant(*program.inputs))
        assert [port.name for port in module.inputs] == ["a", "b"]
