"""Quantised and narrow floating-point arithmetic."""
