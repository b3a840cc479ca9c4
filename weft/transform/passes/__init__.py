"""Passes that simplify, fold, inline and legalize."""
