"""Scatters: writes at positions that another tensor gives."""
