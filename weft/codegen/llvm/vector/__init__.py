"""Vector idioms: legal widths, constant masks, table lookups, dot-product instructions."""
