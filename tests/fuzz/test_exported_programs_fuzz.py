"""Damaged files of torch.export.save: an error of weft's family that says something, or a module.

``python -m tests.fuzz.test_exported_programs_fuzz 0 10000`` reads 10,000.
"""

from __future__ import annotations

import io
import json
import random
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.mutate import EXTREME_INTS, mutate_bytes
from tests.fuzz.test_other_formats_fuzz import is_refused

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

FILES_PER_ROUND = 10


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 2, 3)
        self.register_buffer("scale", torch.ones(2))

    def forward(self, x: Any, y: Any) -> Any:
        z = torch.relu(self.conv(x)).mean((2, 3)) * self.scale
        return z + y[: x.shape[0]].sum(), z.reshape(-1, 1)


def whole() -> bytes:
    """The file of a program with weights, a constant and a symbolic size."""
    file = io.BytesIO()
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2, max=8)
    sizes = {"x": {0: batch}, "y": {0: batch}}
    examples = torch.ones(3, 1, 4, 4), torch.ones(3)
    torch.export.save(torch.export.export(Net().eval(), examples, dynamic_shapes=sizes), file)
    return file.getvalue()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """``data`` with damage to the archive, to one of its records, or to the fields of one."""
    kind = rng.randrange(4)
    if kind == 0:
        return mutate_bytes(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        records = {name: archive.read(name) for name in archive.namelist()}
    texts = [name for name in records if name.endswith(".json")]
    name = rng.choice(list(records) if kind == 1 else texts)
    if kind == 1:
        records[name] = mutate_bytes(records[name], rng)
    else:
        value = json.loads(records[name])
        for _ in range(rng.choice((1, 1, 2))):
            change(value, rng)
        records[name] = json.dumps(value).encode()
    if rng.randrange(50) == 0:
        del records[rng.choice(list(records))]
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for record, content in records.items():
            archive.writestr(record, content)
    return file.getvalue()


def change(value: Any, rng: random.Random) -> None:
    """Change one field of a JSON value."""
    fields = list(_fields(value))
    if not fields:
        return
    holder, key = rng.choice(fields)
    kind = rng.randrange(5)
    if kind == 0 and isinstance(holder, dict):
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif kind == 2:
        holder[key] = rng.choice(EXTREME_INTS)
    elif kind == 3:
        other, place = rng.choice(fields)
        holder[key] = json.loads(json.dumps(other[place]))
    else:
        holder[key] = rng.choice((None, [], {}, "", "s0", "torch.ops.aten.relu.default", True, 0.5))


def _fields(value: Any) -> Iterator[tuple[Any, Any]]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        for key in one if isinstance(one, dict) else range(len(one)):
            yield one, key
            if isinstance(one[key], (dict, list)):
                waiting.append(one[key])


def read(path: Path) -> None:
    from weft.frontend.torch.archive import load_archive

    load_archive(path)


def read_and_import(path: Path) -> None:
    from weft.frontend.torch import from_torch, torch_program
    from weft.frontend.torch.archive import load_archive

    from_torch(torch_program(load_archive(path)))


def check(data: bytes, seed: str, folder: Path, reads: Callable[[Path], None]) -> bool:
    """Whether the damaged file is refused."""
    path = folder / "net.pt2"
    path.write_bytes(damaged(data, random.Random(seed)))
    try:
        return is_refused(reads, path)
    except Exception as error:
        error.add_note(f"seed: {seed}")
        raise


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("number", range(20))
def test_damaged_exported_programs(number: int, tmp_path: Path) -> None:
    data = whole()
    seeds = range(number * FILES_PER_ROUND, (number + 1) * FILES_PER_ROUND)
    assert sum(check(data, f"pt2/{seed}", tmp_path, read_and_import) for seed in seeds)


def test_the_whole_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "net.pt2"
    path.write_bytes(whole())
    assert not is_refused(read_and_import, path)


def main(start: int, count: int) -> None:
    """Read so many damaged files, import a tenth, and print the seeds of the faults."""
    data, refused = whole(), 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(start, start + count):
            print(seed, end="\r", file=sys.stderr, flush=True)
            try:
                reads = read if seed % 10 else read_and_import
                refused += check(data, f"pt2/{seed}", Path(folder), reads)
            except Exception as error:  # noqa: BLE001 - all faults are listed
                print(f"pt2/{seed}: {type(error).__name__}: {error}"[:300].replace("\n", " "),
                      flush=True)
    print(f"{count} files, {refused} refused")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
