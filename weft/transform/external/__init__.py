"""Regions of a program handed to other code generators."""
