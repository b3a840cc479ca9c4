"""Resampling: resizing, sampling at positions, deformable convolution."""
