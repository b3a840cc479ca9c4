"""Files of torch.export.save, and those that would run code when torch reads them."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import weft
from weft.frontend.torch.archive import load_archive
from weft.support.errors import InvalidModelError, UnsupportedModelError

pytestmark = pytest.mark.torch

MODEL, INPUTS = "models/model.json", "data/sample_inputs/model.pt"
CONSTANTS = "data/constants/model_constants_config.json"


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.pt2"
    sizes = ({0: torch.export.Dim("batch", min=1, max=64)},)
    torch.export.save(torch.export.export(Net().eval(), (torch.ones(2, 4),),
                                          dynamic_shapes=sizes), path)
    return path


def test_a_file_is_a_model(saved: Path) -> None:
    run, loaded = weft.compile(saved), torch.export.load(saved).module()
    for rows in (1, 5):  # torch's program takes one row, too
        x = torch.randn(rows, 4)
        np.testing.assert_allclose(run(x), loaded(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_fixed_sizes_are_kept_in_the_cache(tmp_path: Path) -> None:
    path, x = tmp_path / "fixed.pt2", torch.randn(2, 4)
    torch.export.save(torch.export.export(Net().eval(), (x,)), path)
    with weft.config(no_cache=False, cache_dir=tmp_path / "cache", verify=0):
        first, second = weft.compile(path), weft.compile(path)
    assert "start: warm" in second.explain()
    np.testing.assert_array_equal(first(x), second(x))


def rewrite(path: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Change the records of the archive, by their names without its root."""
    with zipfile.ZipFile(path) as archive:
        roots = {name.partition("/")[0] for name in archive.namelist()}
        records = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
    change(records)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in records.items():
            archive.writestr(f"{min(roots)}/{name}", data)


def in_text(record: str, before: str, after: str) -> Callable[[dict[str, bytes]], None]:
    def change(records: dict[str, bytes]) -> None:
        text = records[record].decode()
        assert before in text
        records[record] = text.replace(before, after).encode()

    return change


class Evil:
    """Its pickle writes a file when it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def pickled(path: Path) -> bytes:
    file = io.BytesIO()
    torch.save((Evil(path),), file)
    return file.getvalue()


def constant(records: dict[str, bytes], name: str, data: bytes) -> None:
    """Add a constant that torch reads as a pickle."""
    config = {"path_name": name, "is_param": False, "use_pickle": True, "tensor_meta": None}
    records[CONSTANTS] = json.dumps({"config": {"c": config}}).encode()
    records[f"data/constants/{name}"] = data


def evil_changes(trace: Path) -> Mapping[str, Callable[[dict[str, bytes]], object]]:
    symbol = "Symbol('s77', positive=True, integer=True)"
    code = f"open('{trace}', 'w')"
    return {
        "an example": lambda r: r.update({INPUTS: pickled(trace)}),
        "a constant": lambda r: constant(r, "tensor_0", pickled(trace)),
        "an object": lambda r: constant(r, "opaque_obj_0", pickle.dumps(Evil(trace))),
        "a library": lambda r: r.update({"data/aotinductor/model/a.so": b"\x7fELF"}),
        "a size": in_text(MODEL, symbol, code),
        "a large size": in_text(MODEL, symbol, "9**9**9**9"),
        "a name": in_text(MODEL, '"name": "input"', f'"name": "input={code}, b"'),
        "a function": in_text(MODEL, "torch.ops.aten.relu.default", "torch.os.system"),
    }


@pytest.mark.parametrize("name", evil_changes(Path()))
def test_code_in_a_file_does_not_run(name: str, saved: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    rewrite(saved, evil_changes(trace)[name])
    with pytest.raises(InvalidModelError) as caught:
        weft.compile(saved)
    assert not trace.exists()
    assert str(saved) in str(caught.value)
    assert "torch cannot read" not in caught.value.what


def test_operators_that_this_process_lacks_are_listed_at_once(saved: Path) -> None:
    def change(records: dict[str, bytes]) -> None:
        in_text(MODEL, "torch.ops.aten.relu.default", "torch.ops.acme.one.default")(records)
        in_text(MODEL, "torch.ops.aten.linear.default", "torch.ops.acme.two.default")(records)

    rewrite(saved, change)
    with pytest.raises(UnsupportedModelError, match=r"2 of the program's operators") as caught:
        load_archive(saved)
    assert sorted(caught.value.notes) == ["torch.ops.acme.one.default",
                                          "torch.ops.acme.two.default"]


@pytest.mark.parametrize(("record", "before", "after"), [
    (MODEL, '"schema_version": {"major": ', '"schema_version": {"major": 9'),
    ("archive_version", "0", "7"),
])
def test_newer_versions_name_the_installed_torch(record: str, before: str, after: str, saved: Path
                                                 ) -> None:
    rewrite(saved, in_text(record, before, after))
    with pytest.raises(InvalidModelError, match="torch cannot read") as caught:
        load_archive(saved)
    assert torch.__version__ in str(caught.value.help)


def test_files_that_are_no_archives(saved: Path, tmp_path: Path) -> None:
    whole = saved.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 5):
        saved.write_bytes(whole[:size])
        with pytest.raises(InvalidModelError, match="not an exported program"):
            load_archive(saved)
    with pytest.raises(InvalidModelError, match="cannot be read"):
        weft.compile(tmp_path / "missing.pt2")
