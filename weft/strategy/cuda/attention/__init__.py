"""Attention on NVIDIA GPUs, in the FlashAttention form."""
