"""Computes of detectors: boxes, regions of interest, suppression of overlaps."""
