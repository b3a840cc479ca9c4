"""Artifacts of every released format as text, kept for as long as their portable form is promised.

``python -m tests.unit.export.stored_programs`` writes those of the present format, which must not
be there yet: a stored file is never changed. Each holds the members of an artifact without native
code, JSON as it is and weights in base64, with inputs and the results of the release.
"""

from __future__ import annotations

import base64
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import weft
from weft.runtime.artifact_contents import HEAD, VERSION
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.artifact_format import write_archive

FOLDER = Path(__file__).parent / "stored"

# Name -> program, shapes of its inputs, options of the compilation.
PROGRAMS: dict[str, tuple[str, tuple[tuple[int, ...], ...], dict[str, Any]]] = {
    "normalized": ("""def @main(%x: Tensor[(n, 8), float32]) {
        nn.softmax(nn.layer_norm(%x, ones(shape=(8,), dtype="float32"),
                                 zeros(shape=(8,), dtype="float32"))) }""", ((5, 8),), {}),
    "recursion": ("""def @main(%x: Tensor[(2, 3), float32]) { @more(%x, 2) }
        def @more(%x: Tensor[(2, 3), float32], %n: Tensor[(), int32]) -> Tensor[(2, 3), float32] {
          if (less(%n, 1)) { %x } else { add(%x, @more(exp(%x), subtract(%n, 1))) } }""",
                  ((2, 3),), {}),
    "state": ("""def @main(%x: Tensor[(4,), float32], %total: Tensor[(4,), float32]) {
        let %next = add(%x, %total); (sum(%next), %next) }""", ((4,),),
              {"state": {"output1": "total"}}),
    "sizes": ("def @main(%x: Tensor[(9,), float32]) { argwhere(greater(%x, 0f)) }", ((9,),), {}),
}


def convolution() -> weft.Executable:
    """Convolution, pooling and a dense layer with weights that are too large for the text."""
    random = np.random.default_rng(0)
    x = weft.ir.var("x", (1, 3, 8, 8), "float32")
    kernel, dense = (weft.ir.Constant(random.standard_normal(shape).astype(np.float32) / 4)
                     for shape in ((4, 3, 3, 3), (5, 64)))
    nn = weft.op.nn
    body = nn.relu(nn.conv2d(x, kernel, padding=(1, 1, 1, 1)))
    body = nn.max_pool2d(body, pool_size=(2, 2), strides=(2, 2))
    body = nn.softmax(nn.dense(weft.op.reshape(body, newshape=(1, 64)), dense))
    return weft.compile(weft.ir.infer_type(weft.ir.IRModule(
        {"main": weft.ir.Function((x,), body)})))


def modules() -> Iterator[tuple[str, weft.Executable, list[np.ndarray]]]:
    """The programs with inputs for them."""
    random = np.random.default_rng(1)
    yield "convolution", convolution(), [random.standard_normal((1, 3, 8, 8)).astype(np.float32)]
    for name, (text, shapes, options) in PROGRAMS.items():
        inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        yield name, weft.compile(weft.parse(text), **options), inputs


def as_text(module: weft.Executable, inputs: list[np.ndarray]) -> str:
    """The stored form of a module, with the results of a call."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.weft"
        module.export(path)
        file = ArtifactFile(path)
        names = [name for name in file.contents.checksums if not name.startswith("native/")]
        members = {name: bytes(file.read(name)) for name in names if name != HEAD}
        contents = file.contents
    entries = {name: replace(entry, programs=()) for name, entry in contents.entries.items()}
    checksums = {name: contents.checksums[name] for name in members}
    head = replace(contents, entries=entries, checksums=checksums).to_json()
    results = module.run(None, dict(zip([s.name for s in module.inputs], inputs, strict=True)))
    return json.dumps({
        "members": {HEAD: head, **{name: _packed(name, data) for name, data in members.items()}},
        "inputs": [*map(_array, inputs)], "results": [*map(_array, results)]}, indent=1) + "\n"


def written(path: Path, stored: Mapping[str, Any]) -> Path:
    """The artifact of a stored program."""
    members = {name: (text.encode() if name.endswith(".json") else base64.b64decode(text),)
               for name, text in stored["members"].items()}
    with path.open("wb") as file:
        write_archive(file, members)
    return path


def arrays(stored: list[dict[str, Any]]) -> list[np.ndarray]:
    """Inputs or results of a stored program."""
    return [np.array(one["values"], one["dtype"]).reshape(one["shape"]) for one in stored]


def _packed(name: str, data: bytes) -> str:
    return data.decode() if name.endswith(".json") else base64.b64encode(data).decode()


def _array(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "shape": list(array.shape),
            "values": array.reshape(-1).tolist()}


if __name__ == "__main__":
    target = FOLDER / f"format-{VERSION}"
    if target.exists():
        sys.exit(f"{target} is there: stored files are never changed")
    target.mkdir(parents=True)
    for name, module, inputs in modules():
        (target / f"{name}.json").write_text(as_text(module, inputs), encoding="utf-8")
