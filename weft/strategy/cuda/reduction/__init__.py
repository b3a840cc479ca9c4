"""Groups with reductions: sums, extrema, softmax, normalisations, pooling."""
