"""Regions of a program delegated to external code generators."""
