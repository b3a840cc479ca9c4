"""Targets: what code is generated for."""

from weft.target.target import Target, parse_target

__all__ = ["Target", "parse_target"]
