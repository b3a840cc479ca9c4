"""Injective groups: elementwise chains, broadcasts, slices, gathers, transposes."""
