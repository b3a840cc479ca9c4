"""Placement: on which device each part of a program runs, and where its tensors lie."""
