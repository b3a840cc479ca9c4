"""Dataflow patterns, and rewriting and partitioning by patterns."""
