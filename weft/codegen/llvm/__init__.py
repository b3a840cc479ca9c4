"""Machine code for CPUs through LLVM."""
