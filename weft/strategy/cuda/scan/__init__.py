"""Scans along an axis: cumulative sums, products, extrema, log-sum-exp."""
