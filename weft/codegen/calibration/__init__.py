"""Measures the machine that this process runs on: its ports, clock, caches and threads."""

from weft.codegen.calibration.calibrate import Calibration, calibrate

__all__ = ["Calibration", "calibrate"]
