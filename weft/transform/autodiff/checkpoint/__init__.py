"""Values that the gradient computes again rather than keeps."""
