"""Random damage to artifacts: ``python -m tests.fuzz.artifact_mutations 10000``.

Damage without right checksums is noticed, or changes nothing. Where the checksums are made right
again, as somebody would who edits a file, loading refuses the file or gives a module, which is not
run: it neither crashes nor hangs.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import weft
from tests.fuzz.mutate import mutate_bytes
from weft.compiler.rebuild import module_of
from weft.runtime import artifact
from weft.runtime.artifact_contents import HEAD, Contents
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.artifact_format import digest, write_archive
from weft.runtime.artifact_loader import PortableProgram
from weft.support.errors import WeftError

_TEXTS = {
    "fixed": ("def @main(%x: Tensor[(4, 8), float32]) { nn.softmax(exp(%x)) }", {}),
    "symbolic": ("def @main(%x: Tensor[(n, 8), float32]) { nn.softmax(%x) }", {}),
    "virtual machine": ("""def @main(%x: Tensor[(4, 8), float32]) { @more(%x, 2) }
        def @more(%x: Tensor[(4, 8), float32], %n: Tensor[(), int32]) -> Tensor[(4, 8), float32] {
          if (less(%n, 1)) { %x } else { add(%x, @more(exp(%x), subtract(%n, 1))) } }""", {}),
    "state": ("""def @main(%x: Tensor[(4, 8), float32], %s: Tensor[(4, 8), float32]) {
        let %next = add(%x, %s); (exp(%next), %next) }""", {"state": {"output1": "s"}}),
}
X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
_VALUES: tuple[Any, ...] = (None, True, -1, 0, 1, 3, 1 << 40, 1 << 70, 1.5, "", "x", "_0", "n*n",
                            [], {}, [0], ["input", 0], "../x", "main", "float64", "x" * 5000)


def programs(folder: Path) -> dict[str, tuple[Path, bytes]]:
    """An artifact of each kind with its result."""
    made = {}
    for name, (text, options) in _TEXTS.items():
        path = folder / f"{name}.weft"
        module = weft.compile(weft.parse(text), **options)
        module.export(path, check=False)
        made[name] = path, module(X).tobytes()
    return made


def edited(members: Mapping[str, bytes], rng: random.Random) -> dict[str, bytes]:
    """The members with one value of one JSON member changed, under checksums that are right."""
    made = dict(members)
    name = rng.choice([name for name in members if name.endswith(".json")])
    document = json.loads(made[name])
    holders = list(_holders(document))
    for _ in range(rng.choice([1, 1, 2, 5])):
        holder, key = rng.choice(holders)
        if rng.random() < 0.2:
            holder.pop(key, None) if isinstance(holder, dict) else None
        else:
            holder[key] = rng.choice(_VALUES)
    made[name] = json.dumps(document).encode()
    return with_checksums(made)


def with_checksums(members: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a head whose checksums are right, if it still is a head."""
    try:
        plain = json.loads(members[HEAD])
        plain["checksums"] = {name: digest(data) for name, data in members.items() if name != HEAD}
        head = Contents(**{k: v for k, v in plain.items() if k not in ("format", "checksums")},
                        checksums=plain["checksums"])
        right = json.loads(head.to_json())["checksums"]
        members[HEAD] = json.dumps({**plain, "checksums": right}).encode()
    except (TypeError, KeyError, AttributeError):
        pass
    return members


def try_damage(path: Path, right: bytes, rng: random.Random, folder: Path) -> str:
    """What happens with a damaged file; ``AssertionError`` if it computes something else."""
    target = folder / f"{rng.randrange(1 << 30)}.weft"
    target.write_bytes(mutate_bytes(path.read_bytes(), rng))
    try:
        module = artifact.load(target)
    except WeftError:
        return "refused"
    finally:
        target.unlink()
    assert module(X).tobytes() == right, "a damaged file computes something else"
    return "harmless"


def try_edit(path: Path, rng: random.Random, folder: Path) -> str:
    """What happens with an edited file whose checksums are right."""
    file = ArtifactFile(path)
    members = edited({name: bytes(file.read(name)) if name != HEAD else
                      file.contents.to_json().encode() for name in file.extents}, rng)
    target = folder / f"{rng.randrange(1 << 30)}.weft"
    with target.open("wb") as out:
        write_archive(out, {name: (data,) for name, data in members.items()})
    try:
        artifact.load(target)
        for name, data in members.items():
            if name.startswith("portable/") and name.endswith(".json"):
                module_of(PortableProgram(data.decode(), file.read, {}, {}))
    except WeftError:
        return "refused"
    finally:
        target.unlink()
    return "loaded"


def run(count: int, seed: int, folder: Path) -> Counter[str]:
    """``count`` mutations of artifacts of all kinds; how often what happened."""
    made, found = programs(folder), Counter[str]()
    kinds: list[Callable[[str, random.Random], str]] = [
        lambda name, rng: try_damage(*made[name], rng, folder),
        lambda name, rng: try_edit(made[name][0], rng, folder)]
    for number in range(count):
        rng = random.Random(seed + number)
        name = list(made)[number % len(made)]
        start = time.perf_counter()
        try:
            found[kinds[number // len(made) % 2](name, rng)] += 1
        except BaseException as error:
            error.add_note(f"mutation {seed + number} of {name!r}")
            raise
        assert time.perf_counter() - start < 10, f"mutation {seed + number} of {name!r} hangs"
    return found


def _holders(document: Any) -> list[tuple[Any, Any]]:
    """Each list or dictionary inside, with each of its keys."""
    found, stack = [], [document]
    while stack:
        value = stack.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            found.append((value, key))
            if isinstance(value[key], (dict, list)):
                stack.append(value[key])
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        sys.stdout.write(f"{dict(run(int(sys.argv[1]), 0, Path(temporary)))}\n")
