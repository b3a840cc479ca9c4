"""Operators that move elements, and operators that create tensors."""
