"""Functions of tensors, with torch's names and meanings."""
