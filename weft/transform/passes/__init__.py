"""Passes that simplify, fold, inline and legalise."""
