"""Direct convolution, over blocked channels or the original layout."""
