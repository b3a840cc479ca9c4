"""The interactive page about a compilation: ``weft view``."""
