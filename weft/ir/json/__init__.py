"""The JSON form of a module."""
