"""CPUs: calls of machine code, linked objects, threads."""
