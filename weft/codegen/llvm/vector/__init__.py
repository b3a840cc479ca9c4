"""Dot-product instructions of CPUs."""
