"""Automatic differentiation, from programs to programs."""
