"""Placement: the device on which each part of a program runs, and that stores its tensors."""
