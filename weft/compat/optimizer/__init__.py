"""The graph optimiser: passes in iterations until nothing changes, and control edges."""
