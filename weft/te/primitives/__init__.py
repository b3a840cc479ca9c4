"""Schedule primitives: each docstring shows the loops before and after."""
