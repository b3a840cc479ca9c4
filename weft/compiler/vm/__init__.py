"""Compilation of programs with control flow to bytecode for the virtual machine."""
