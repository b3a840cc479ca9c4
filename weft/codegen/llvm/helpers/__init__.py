"""Functions that LLVM calls where a CPU has no instruction, for programs without a C library.

The artifact contains them, hidden from the program that links it.
"""
