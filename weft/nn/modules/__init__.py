"""The layers; ``weft.nn`` has their names."""
