"""Devices other than the host: their memory, streams and launches."""
