"""Relocatable objects of the formats that LLVM writes: which symbols they define and need."""
