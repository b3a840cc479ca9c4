"""Transformations of programs that users call: ``weft.grad``, ``weft.jvp``, ``weft.hessian``, ..

Each takes what ``weft.compile`` takes as a model and returns an ``IRModule``, so they nest in any
order.
"""
