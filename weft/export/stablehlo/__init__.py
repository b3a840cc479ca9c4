"""Typed programs of static shapes as the text of StableHLO modules."""
