"""Programs of PyTorch through weft: its own operator samples, and random ones."""
