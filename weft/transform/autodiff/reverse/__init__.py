"""Reverse mode: gradients by a sweep from the result to the inputs."""
