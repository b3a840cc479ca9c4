"""weft inside other tools."""
