"""``weft quantize`` and ``--precision``."""

from __future__ import annotations

import json

import numpy as np
import pytest

import weft
from tests.unit.cli.commands import run
from tests.unit.quantization.test_quantize import two_layers
from tests.unit.quantization.test_weight_only import batches, relative


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.ir"
    path.write_text(str(two_layers()))
    return path


def test_a_quantised_program_is_written_and_read_again(model, tmp_path, capsys):
    data, small, report = tmp_path / "x.npz", tmp_path / "small.ir", tmp_path / "report.json"
    x = batches(count=8)
    np.savez(data, x=np.stack(x))
    code, out, _ = run(["quantize", model, "-o", small, "--scheme", "int4_gptq", "--data", data,
                        "--format", "int4_g64", "--report", report], capsys)
    assert code == 0
    assert "2 of 2 layers quantised" in out
    assert small.stat().st_size < 0.4 * model.stat().st_size
    assert relative(weft.compile(small)(x[0]), weft.compile(model)(x[0])) < 0.2
    assert json.loads(report.read_text())["layers"][0]["after"] == "int4_g64"


def test_an_artifact_has_the_blocks(model, tmp_path, capsys):
    code, _, _ = run(["quantize", model, "-o", tmp_path / "net.weft", "--scheme",
                      "int8_weight_only"], capsys)
    assert code == 0
    x = batches(count=1)[0]
    assert 0 < relative(weft.load(tmp_path / "net.weft")(x), weft.compile(model)(x)) < 0.01


def test_other_files_are_refused(model, tmp_path, capsys):
    code, _, err = run(["quantize", model, "-o", tmp_path / "net.onnx"], capsys)
    assert code == 2
    assert "cannot write a quantised model as .onnx" in err


def test_precision_is_an_option_of_commands(model, capsys):
    full, small = (run(["run", model, "--fill", "ones", "--precision", precision], capsys)[1]
                   for precision in ("fp32", "int4"))
    assert full.split("mean")[0].split()[0] == small.split("mean")[0].split()[0]
    assert full != small


def test_an_artifact_at_a_precision_holds_no_floats(tmp_path):
    """Neither the code nor the program for other CPUs has the weights as they were."""
    net, path = two_layers(k=512, n=512), tmp_path / "net.weft"
    weft.compile(net, precision="int4").export(path, check=False)
    assert path.stat().st_size < 0.5 * 4 * 512 * 512
