"""Functions that LLVM calls where a CPU has no instruction, for programs without a C library.

They come along in the artifact, hidden from the program that links it.
"""
