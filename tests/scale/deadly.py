"""What a replica runs that some inputs end."""

from __future__ import annotations

import os
import signal

import numpy as np


def add_one(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """x + 1; ends the process for an input of 13."""
    if (arrays[0] == 13).any():
        os.kill(os.getpid(), signal.SIGKILL)
    return [arrays[0] + 1]
