"""PTX as text: its parts, the parser, inlined calls and basic blocks."""
