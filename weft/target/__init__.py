"""Targets: what code is generated for."""

from weft.target.cpu_target import CpuTarget
from weft.target.target import TARGET_KINDS, Target, register_target_kind

__all__ = ["TARGET_KINDS", "CpuTarget", "Target", "register_target_kind"]
