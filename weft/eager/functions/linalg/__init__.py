"""Linear algebra of tensors: norms, factorizations, systems of equations."""
