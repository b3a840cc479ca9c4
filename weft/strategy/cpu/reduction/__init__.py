"""Reductions, softmax and normalisation."""
