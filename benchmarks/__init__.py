"""Side-by-side measurements against other runtimes: ``python -m benchmarks``."""
