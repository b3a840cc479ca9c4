"""Vector idioms: legal widths, constant masks, table lookups."""
