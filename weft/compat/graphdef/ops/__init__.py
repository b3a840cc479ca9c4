"""Converters of TensorFlow's operators, one group per file."""
