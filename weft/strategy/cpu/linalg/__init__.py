"""Factorizations of matrices on CPUs."""
