"""Dataflow patterns, and rewriting and partitioning by them."""
