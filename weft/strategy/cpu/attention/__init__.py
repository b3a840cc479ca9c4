"""Attention: fused tiles, decode attention, or matmuls around a softmax."""
