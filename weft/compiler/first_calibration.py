"""Measures this machine before the first compilation for a CPU that no shipped table describes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from weft.support.config import config
from weft.support.log import Level, debug, logger
from weft.support.progress import task
from weft.target import CpuTarget
from weft.target.host_machine import needs_calibration, store_machine
from weft.target.machine_tables import machine_of_cpu

if TYPE_CHECKING:
    from weft.codegen.calibration import Calibration


def calibrate_if_unknown() -> None:
    """Measure and store the machine of the host, once, if nothing but its architecture is known.

    A machine that cannot be measured or stored is taken for the nearest one that weft ships.
    """
    if config.calibrate:
        _once()


@functools.cache
def _once() -> None:
    host = CpuTarget.host()
    if needs_calibration(host.cpu, host.arch):
        calibrate_and_store(host)


def calibrate_and_store(host: CpuTarget) -> Calibration:
    """Measure the machine and keep the result for this host; report what cannot be kept."""
    from weft.codegen.calibration import calibrate  # measuring is rare, and loads LLVM

    with task(f"measuring this machine ({host.cpu})", 1) as progress:
        result = calibrate(host)
        progress.advance()
    if result.is_noisy:
        logger("calibrate").warning(
            "other programs ran while this machine was measured: half of the rounds took %.1f "
            "times as long as the best; run weft calibrate --force when it is idle",
            1 + result.noise)
    try:
        store_machine(result.machine, {"sources": dict(result.sources), "raw": str(result.measured),
                                       "threads": result.threads, "noise": result.noise})
    except OSError as error:
        nearest = machine_of_cpu(host.cpu, host.arch, host.vector_bits)
        debug(Level.CACHE, "calibrate", f"not stored: {error}; the machine is taken for {nearest}")
    return result
