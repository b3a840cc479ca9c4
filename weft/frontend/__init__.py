"""Importers of model formats, one package each, loaded on first use."""
