"""Data-dependent shapes: nonzero positions, unique values."""
