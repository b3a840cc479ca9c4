"""The HTML report of a compiled model."""
