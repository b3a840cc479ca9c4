"""Helpers shared by several operator families."""
