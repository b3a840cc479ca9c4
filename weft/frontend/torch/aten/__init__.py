"""Converters of ATen operators, one module per family."""
