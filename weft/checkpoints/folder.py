"""The checkpoints of a run in a folder: the last ones are kept, the newest is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from weft.checkpoints.files import Checkpoint, read_checkpoint, write_checkpoint
from weft.support.errors import CheckpointError

_NAME = re.compile(r"checkpoint-(\d+)\.safetensors")


def checkpoint_files(folder: str | PathLike[str]) -> list[Path]:
    """The checkpoints of a folder, ordered by step. An absent folder has none."""
    folder = Path(folder)
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir()
             if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def save_checkpoint(folder: str | PathLike[str], step: int, *, keep: int | None = 3,
                    metadata: Mapping[str, Any] | None = None, **parts: Any) -> Path:
    """Write ``checkpoint-STEP.safetensors`` in a folder, and remove all but the last ``keep``.

    ``parts`` are objects with ``state_dict()`` (modules, optimisers, schedules, data loaders,
    generators) or plain states: arrays, numbers, text, and containers of them. ``keep=None`` keeps
    all. Returns the path. Raises ``CheckpointError``; older files are then untouched.
    """
    if keep is not None and keep < 1:
        raise CheckpointError("keep is not positive", expected="the number of files to keep",
                              got=keep)
    state = {name: _state(part) for name, part in parts.items()}
    path = Path(folder) / f"checkpoint-{step:08d}.safetensors"
    write_checkpoint(path, step, state, metadata)
    if keep is not None:
        others = [file for file in checkpoint_files(folder) if file != path]
        for old in others[: len(others) - (keep - 1)]:
            old.unlink(missing_ok=True)
    return path


def _state(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part


def load_checkpoint(path: str | PathLike[str], **parts: Any) -> Checkpoint:
    """Read a checkpoint and restore ``parts`` by their ``load_state_dict``.

    ``path`` is a file, or a folder whose checkpoint of the highest step is read. The parts have the
    names they were saved under; all parts exist in the file before any is restored. Plain states
    are in ``.state`` of the result. Raises ``CheckpointError`` for a missing or damaged file, and
    names the one before it.
    """
    path = Path(path)
    file = _newest(path) if path.is_dir() else path
    try:
        found = read_checkpoint(file)
    except CheckpointError as error:
        raise _with_previous(error, file) from None
    missing = [name for name in parts if name not in found.state]
    if missing:
        raise CheckpointError("a checkpoint lacks what is to be restored", where=file,
                              expected=", ".join(missing), got=", ".join(found.state))
    for name, part in parts.items():
        part.load_state_dict(found.state[name])
    return found


def _newest(folder: Path) -> Path:
    files = checkpoint_files(folder)
    if not files:
        raise CheckpointError("a folder without checkpoints", where=folder,
                              expected="checkpoint-STEP.safetensors")
    return files[-1]


def _with_previous(error: CheckpointError, file: Path) -> CheckpointError:
    """The error with the name of the file before it, if there is one."""
    match = _NAME.fullmatch(file.name)
    step = int(match[1]) if match else 0
    before = [other for other in checkpoint_files(file.parent)
              if match and int(other.stem.rpartition("-")[2]) < step]
    if not before:
        return error
    return CheckpointError(error.what, where=error.where, expected=error.expected, got=error.got,
                           notes=error.notes, help=f"the checkpoint before it is {before[-1]}")
