"""Passes that convert functions to and from normal forms (ANF, CPS, basic blocks, graphs)."""
