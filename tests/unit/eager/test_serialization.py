"""``weft.save`` and ``weft.load``."""

from __future__ import annotations

import io
import pickle

import pytest

import weft
from weft.support.errors import ArtifactError, CheckpointError


def test_containers_of_tensors_come_back(tmp_path):
    model = weft.nn.Linear(3, 2)
    state = {"model": model.state_dict(), "step": 7, "half": weft.ones(2, dtype=weft.bfloat16),
             "grad": weft.ones(1, requires_grad=True), "rates": (0.1, [1, None, "x"])}
    weft.save(state, tmp_path / "state.weft")
    found = weft.load(tmp_path / "state.weft")
    assert found["model"]["weight"].tolist() == model.weight.tolist()
    assert (found["step"], found["rates"]) == (7, (0.1, [1, None, "x"]))
    assert found["half"].dtype is weft.bfloat16
    assert found["grad"].requires_grad
    assert [p.name for p in tmp_path.iterdir()] == ["state.weft"]


def test_open_files_are_taken():
    file = io.BytesIO()
    weft.save([weft.arange(3)], file)
    file.seek(0)
    assert weft.load(file)[0].tolist() == [0, 1, 2]


class Harmful:
    def __reduce__(self):
        return print, ("run",)


def test_a_file_cannot_run_code(capsys):
    file = io.BytesIO()
    weft.save(Harmful(), file)
    file.seek(0)
    with pytest.raises(CheckpointError, match="not loaded"):
        weft.load(file)
    assert capsys.readouterr().out == ""


def test_other_files_are_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"not a file that weft\.save"):
        weft.load(io.BytesIO(pickle.dumps([1])))
    (tmp_path / "cut").write_bytes(b"weft objects 1\n\x80")
    with pytest.raises(CheckpointError, match="damaged"):
        weft.load(tmp_path / "cut")
    with pytest.raises(ArtifactError):
        weft.load(tmp_path / "missing")
