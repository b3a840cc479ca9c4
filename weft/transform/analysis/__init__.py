"""Analyses: they answer questions about a program and change nothing."""
