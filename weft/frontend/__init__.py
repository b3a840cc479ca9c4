"""Model formats that weft reads; each format is a package of its own, imported when it is used."""
