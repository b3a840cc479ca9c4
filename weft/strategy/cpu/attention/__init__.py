"""Attention: fused tiles, decode attention, or matrix products around a softmax."""
