"""Whole layers in 8-bit integers: calibrated ranges, or scales of each row found at run time."""
