"""Code generation."""
