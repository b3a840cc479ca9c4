"""ELF objects: reading their symbols, linking them, writing data as an object."""
