"""Convolutions on NVIDIA GPUs, as implicit GEMMs."""
