"""Forward mode: tangents beside the values of a program."""
