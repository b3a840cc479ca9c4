"""Strategies and schedules for NVIDIA GPUs, one folder per operator family."""

from weft.strategy.cuda import default
from weft.strategy.cuda.gemm import strategy as gemm

__all__ = ["default", "gemm"]
