"""Pooling over windows: whole windows, or separable ones."""
