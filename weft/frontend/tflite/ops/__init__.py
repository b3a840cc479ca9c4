"""Converters by groups of operators."""
