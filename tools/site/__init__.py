"""Writes the pages of the site that come from code: names, commands, settings, passes, errors."""
