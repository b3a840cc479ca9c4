"""The graph optimiser: passes in rounds until nothing changes, and control edges."""
