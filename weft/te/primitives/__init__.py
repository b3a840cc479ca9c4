"""Schedule primitives, one file each; every docstring shows the loops before and after."""
