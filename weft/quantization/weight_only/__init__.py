"""Weights in blocks: matrices of a typed program, or of a language model, in 4 or 8 bits."""
