"""Operators that move elements and keep their values, and operators that create tensors."""
