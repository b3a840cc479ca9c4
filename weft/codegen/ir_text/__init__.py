"""LLVM IR as text: what the back ends that go through LLVM share.

``types`` and ``writer`` hold types, constants and writers of functions and modules. ``emit``
translates expressions and statements, with the vector idioms of ``vector`` and the float formats of
``floats``. A back end provides a ``Kernel`` (``emit.state``) with its own statements, calls and
pointer types: ``codegen.llvm`` for CPUs, ``codegen.cuda`` for NVIDIA GPUs.
"""
