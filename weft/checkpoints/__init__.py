"""Checkpoints of training runs: safetensors files, written atomically, resumable to the bit.

weft.checkpoints.save_checkpoint("run", step, model=model, optimizer=optimizer, loader=loader)
found = weft.checkpoints.load_checkpoint("run", model=model, optimizer=optimizer, loader=loader)
step = found.step
"""

from __future__ import annotations

from weft.checkpoints.files import Checkpoint, read_checkpoint, write_checkpoint
from weft.checkpoints.folder import checkpoint_files, load_checkpoint, save_checkpoint

__all__ = [
    "Checkpoint",
    "checkpoint_files",
    "load_checkpoint",
    "read_checkpoint",
    "save_checkpoint",
    "write_checkpoint",
]
