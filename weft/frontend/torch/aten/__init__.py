"""Converters of ATen operators, grouped by what they compute."""
