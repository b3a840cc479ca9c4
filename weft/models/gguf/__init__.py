"""Models in GGUF files, whose weights are used as they are stored."""
