"""Machine code of this process from ELF objects, without a linker and without LLVM."""
