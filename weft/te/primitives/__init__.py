"""Schedule primitives, which are methods of stages and schedules; every docstring shows the loops before and after."""
