"""Analyses, which compute facts about a program and leave it unchanged."""
