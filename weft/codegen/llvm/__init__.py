"""The LLVM back end for CPUs: loop programs as LLVM IR text, and object code from it.

``backend`` is the part that the rest of the compiler uses, through ``weft.codegen``. ``build``
compiles functions to objects, ``program_text`` writes ``weft_main`` and the entry of C programs,
``jit`` loads objects into this process, and ``runtime_support`` holds the thread pool and the entry
points that every library carries. ``emit`` writes functions and parallel loops; ``codegen.ir_text``
translates their expressions and statements. ``python_bodies`` links functions that numba compiles.
"""
