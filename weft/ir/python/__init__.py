"""Programs written in Python: builders and ``@weft.function``."""
