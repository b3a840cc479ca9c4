"""Strategies and schedules for NVIDIA GPUs, one folder per operator family."""

from weft.strategy.cuda import default

__all__ = ["default"]
