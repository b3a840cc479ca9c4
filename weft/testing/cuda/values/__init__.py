"""What instructions compute, on NumPy arrays over lanes."""
