"""Values that the gradient computes again instead of keeping them."""
