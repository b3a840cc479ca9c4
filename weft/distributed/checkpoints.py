"""Checkpoints of several ranks: a file of each, and any number of ranks goes on from them.

``checkpoint-STEP/`` has ``rank-N.safetensors`` for each rank that wrote it. The folder gets its
name when all are written, so that one with this name is whole.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from weft.checkpoints.files import Checkpoint, read_checkpoint, write_checkpoint
from weft.distributed.communicator import Communicator
from weft.distributed.process import communicator
from weft.support.errors import CheckpointError

_NAME = re.compile(r"checkpoint-(\d+)")
_CHUNKS = "chunks of an array"


def chunk(array: np.ndarray, start: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """The state of a rank that has a part of a flattened array; the parts of all are joined."""
    return {_CHUNKS: {start: array}, "shape": shape}


def own_chunk(value: Any, where: slice) -> Any:
    """A rank's part of a flattened array: of the whole, or of the state that the rank saved."""
    if isinstance(value, Mapping) and _CHUNKS in value:
        return value[_CHUNKS][where.start]
    array = np.asarray(value)
    return array if array.ndim == 0 else np.array(array.reshape(-1)[where])


def save_checkpoint(folder: str | PathLike[str], step: int, *, keep: int = 3,
                    group: Communicator | None = None, metadata: Mapping[str, Any] | None = None,
                    **parts: Any) -> Path:
    """Write a checkpoint with all ranks, and remove all but the last ``keep``.

    ``parts`` have ``state_dict()``, or are plain states. Each rank writes its state of a part with
    ``is_sharded``; rank 0 writes the others. Raises ``CheckpointError`` on all ranks if one cannot
    write its file; the checkpoints before it are untouched.
    """
    group = communicator() if group is None else group
    final = Path(folder) / f"checkpoint-{step:08d}"
    partial = final.with_name(f".{final.name}.partial")
    if group.rank == 0:
        shutil.rmtree(partial, ignore_errors=True)
    group.barrier()
    state = {name: part.state_dict() if hasattr(part, "state_dict") else part
             for name, part in parts.items()
             if group.rank == 0 or getattr(part, "is_sharded", False)}

    def write() -> None:
        partial.mkdir(parents=True, exist_ok=True)
        write_checkpoint(partial / f"rank-{group.rank}.safetensors", step, state,
                         {**(metadata or {}), "ranks": group.size})

    def publish() -> None:
        if group.rank == 0:
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
            for old in _all(Path(folder))[:-keep]:
                shutil.rmtree(old, ignore_errors=True)

    for action in (write, publish):
        _together(group, action, partial)
    return final


def _together(group: Communicator, action: Callable[[], None], partial: Path) -> None:
    """Do something on all ranks; raise on all what failed on one."""
    error = ""
    try:
        action()
    except (CheckpointError, OSError) as failed:
        error = str(failed)
    found = [e.decode() for e in group.gather_bytes(error.encode())]
    if any(found):
        if group.rank == 0:
            shutil.rmtree(partial, ignore_errors=True)
        number = next(r for r, e in enumerate(found) if e)
        raise CheckpointError(f"rank {number} cannot write its part of a checkpoint",
                              where=partial.parent, got=found[number].splitlines()[0],
                              notes=found[number].splitlines()[1:],
                              help="the checkpoints before it are whole")


def load_checkpoint(path: str | PathLike[str], *, group: Communicator | None = None,
                    **parts: Any) -> Checkpoint:
    """Read a checkpoint that any number of ranks wrote, and restore ``parts``.

    ``path`` is a checkpoint, or a folder whose newest one is read. All ranks read the one that
    rank 0 finds. Raises ``CheckpointError`` for a missing or damaged file.
    """
    group = communicator() if group is None else group
    path = Path(path)
    if not _NAME.fullmatch(path.name):
        names = [p.name for p in _all(path)[-1:]]
        newest = group.gather_bytes("".join(names).encode())[0].decode()
        if not newest:
            raise CheckpointError("a folder without checkpoints", where=path,
                                  expected="checkpoint-STEP")
        path /= newest
    first = read_checkpoint(path / "rank-0.safetensors")
    state = first.state
    for number in range(1, first.metadata["ranks"]):
        state = _merged(state, read_checkpoint(path / f"rank-{number}.safetensors").state)
    state = _joined(state)
    missing = [name for name in parts if name not in state]
    if missing:
        raise CheckpointError("a checkpoint lacks what is to be restored", where=path,
                              expected=", ".join(missing), got=", ".join(state))
    for name, part in parts.items():
        part.load_state_dict(state[name])
    return Checkpoint(path, first.step, state, first.metadata)


def _all(folder: Path) -> list[Path]:
    """The checkpoints of a folder, by step."""
    found = folder.iterdir() if folder.is_dir() else iter(())
    return sorted((p for p in found if _NAME.fullmatch(p.name)), key=lambda p: int(p.name[11:]))


def _merged(a: Any, b: Any) -> Any:
    if isinstance(a, dict) and isinstance(b, dict):
        return {key: _merged(a[key], b[key]) if key in a and key in b else a.get(key, b.get(key))
                for key in {**a, **b}}
    return a


def _joined(state: Any) -> Any:
    """The state with whole arrays."""
    if not isinstance(state, dict):
        return state
    if _CHUNKS in state:
        found = state[_CHUNKS]
        flat = np.concatenate([found[start] for start in sorted(found)])
        return flat[:int(np.prod(state["shape"]))].reshape(state["shape"])
    return {key: _joined(value) for key, value in state.items()}
