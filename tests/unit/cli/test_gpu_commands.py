"""The command line and GPUs, on the emulator."""

import json

import pytest

from tests.unit.cli.commands import run
from weft.compiler.program import placement

MODEL = """def @main(%x: Tensor[(16), int64]) {
  let %s = multiply(%x, 3i64);
  let %u = unique(%s, is_sorted=True);
  (%u.0, add(%s, 1i64))
}"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CUDA", "emulate")
    path = tmp_path / "m.ir"
    path.write_text(MODEL)
    return path


def test_the_doctor_lists_drivers_devices_and_tools(capsys, monkeypatch):
    monkeypatch.setenv("WEFT_CUDA", "emulate")
    code, out, _ = run(["doctor", "--json"], capsys)
    facts = json.loads(out)
    assert code == 0
    assert "CUDA 13.0" in facts["cuda driver"]
    assert "sm_90" in facts["cuda:0"]
    assert facts["ptxas"]
    assert facts["libnvvm"]


def test_targets_lists_the_architectures(capsys):
    _, out, _ = run(["targets", "--json"], capsys)
    assert {"sm_80", "sm_90a", "sm_100"} <= set(json.loads(out)["cuda"])


def test_inspect_says_what_runs_on_the_host_and_what_is_copied(model, capsys, monkeypatch):
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    monkeypatch.setattr(placement, "must_run_on_host", lambda source: source.text == "unique")
    code, out, _ = run(["inspect", model, "--target", "cuda"], capsys)
    assert code == 0
    assert "128 bytes from cuda:0 to cpu:0" in out
    assert "unique.cpu.default (on the host)" in out
    assert "2 kernels on the device, 1 on the host, 1 copies of 128 bytes" in out


def test_artifacts_for_gpus_are_compiled_run_and_profiled(model, tmp_path, capsys):
    artifact = tmp_path / "m.weft"
    code, _, _ = run(["compile", model, "--target", "cuda", "-o", artifact], capsys)
    assert code == 0
    code, out, _ = run(["run", artifact, "--fill", "ones"], capsys)
    assert code == 0
    assert "output0: int64[1] min 3" in out
    code, out, _ = run(["profile", artifact, "--repeat", "1", "--trace", tmp_path / "t.json"],
                       capsys)
    assert code == 0
    assert "multiply" in out
    code, _, err = run(["run", model, "--target", "cuda -arch=sm_12"], capsys)
    assert code != 0
    assert "unknown CUDA architecture" in err
