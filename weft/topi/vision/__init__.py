"""Computes of object detection: anchors, regions of interest, non-maximum suppression."""
