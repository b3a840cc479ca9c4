"""Converters of operations, by what they compute."""
