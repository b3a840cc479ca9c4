"""LLVM IR as text: types, constants, and writers of functions and modules."""
