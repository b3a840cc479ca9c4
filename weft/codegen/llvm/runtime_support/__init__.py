"""The runtime that every library carries, as LLVM IR: thread pool, Python call, peak meter."""

from weft.codegen.llvm.runtime_support.build import build_runtime_support, runtime_support_text

__all__ = ["build_runtime_support", "runtime_support_text"]
