"""Targets: what code is generated for."""

from weft.target.cpu_target import CpuTarget
from weft.target.cuda_target import CudaTarget
from weft.target.target import TARGET_KINDS, Target, register_target_kind

__all__ = ["TARGET_KINDS", "CpuTarget", "CudaTarget", "Target", "register_target_kind"]
