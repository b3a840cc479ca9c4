"""Translation of loop programs to LLVM IR: expressions, statements, memory accesses."""
