"""Conversions between float formats, and float remainders, as integer and FMA arithmetic."""
