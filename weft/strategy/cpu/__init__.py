"""Strategies and schedules for CPUs, one folder per operator family; ``families`` has all."""
