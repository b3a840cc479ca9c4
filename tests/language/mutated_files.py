"""Damaged files of models end in an error of weft or in a model, whatever is changed in them.

    python -m tests.language.mutated_files [COUNT] [SEED]

COUNT files (20,000 by default), half of them GGUF and half safetensors, are read in a child
process, so that a crash is found too; its memory is bounded, as a damaged size might ask for all.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.unit.generation.text.gguf_files import write_gguf
from tests.unit.generation.text.model_files import write_folder
from weft.generation.text.load import read_files
from weft.support.errors import WeftError

MEMORY = 8 << 30
_LETTERS = b'0:9"{}[]-\xff\x00e,'


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with bytes or a number changed, a part doubled or left out, or its end cut off."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        at, kind = rng.randrange(len(found)), rng.randrange(14)
        if kind == 0:
            number = rng.choice((0, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1))
            found[at:at + 8] = number.to_bytes(8, "little")
        elif kind == 1:
            del found[at:at + rng.randrange(1, 40)]
        elif kind == 2:
            found[at:at] = found[at:at + rng.randrange(1, 40)]
        else:
            found[at] = rng.choice(_LETTERS) if kind < 8 else rng.randrange(256)
        if len(found) < 2:
            return bytes(found)
    return bytes(found[:rng.randrange(len(found))] if rng.random() < 0.03 else found)


def read_all(count: int, seed: int) -> tuple[int, int]:
    """How many of ``count`` files were refused, and how many gave a model."""
    rng = random.Random(seed)
    refused = read = 0
    with tempfile.TemporaryDirectory() as name:
        folder = write_folder(Path(name) / "model")
        whole_file = write_gguf(Path(name) / "whole.gguf").read_bytes()
        tensors = folder / "part-0.safetensors"
        whole_tensors = tensors.read_bytes()
        heads = whole_file.index(b"token_embd") + 600, 8 + int.from_bytes(whole_tensors[:8],
                                                                          "little")
        for number in range(count):
            path, whole, head, target = (
                (Path(name) / "x.gguf", whole_file, heads[0], Path(name) / "x.gguf")
                if number % 2 else (tensors, whole_tensors, heads[1], folder))
            path.write_bytes(mutated(whole[:head], rng) + whole[head:])
            try:
                weights = read_files(target).weights
                sum(weights.shape_of(name)[0] for name in weights.names())
                read += 1
            except WeftError:
                refused += 1
    return refused, read


def in_a_child(count: int, seed: int) -> tuple[int, int]:
    """``read_all`` in a child process; ``RuntimeError`` if it does not end well."""
    done = subprocess.run([sys.executable, "-m", "tests.language.mutated_files", "--child",
                           str(count), str(seed)], capture_output=True, text=True, check=False,
                          timeout=60 + count / 4)
    if done.returncode:
        raise RuntimeError(f"seed {seed}: a damaged file ended the process with "
                           f"{done.returncode}\n{done.stderr[-3000:]}")
    refused, read = map(int, done.stdout.split())
    return refused, read


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--child"]:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        print(*read_all(int(arguments[1]), int(arguments[2])))
        return
    count = int(arguments[0]) if arguments else 20_000
    seed = int(arguments[1]) if len(arguments) > 1 else random.SystemRandom().randrange(10**6)
    refused, read = in_a_child(count, seed)
    print(f"{count} damaged files, seed {seed}: {refused} refused, {read} read as a model")


if __name__ == "__main__":
    main(sys.argv[1:])
