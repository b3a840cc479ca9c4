"""Computes of images: resampling on grids, sampling at positions, grey-scale morphology."""
