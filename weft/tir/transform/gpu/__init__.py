"""Passes over loop programs of GPUs: blocks, threads, and the memory that they share."""
