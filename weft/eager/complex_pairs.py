"""Complex tensors in memory: pairs of floats.

A tensor of complex64 or complex128 has that dtype in its ``Spec`` alone. Its value is an array of
float32 or float64 with one more axis, of size 2, for the real and the imaginary part of each
element: what NumPy has in memory for complex numbers, so arrays go both ways without a copy.
Programs, and all of the compiler, see floats. Between the two are nodes that change no memory:

- ``as_pair(node)`` is the same value as floats, ``as_complex(node)`` the reverse; gradients flow
  through both, so that the gradient of a complex tensor is, as in torch, that by the real part plus
  i times that by the imaginary part.
- ``view_as_real``, ``view_as_complex``, ``real``, ``imag`` and ``conj`` are views (``views.py``),
  which write through.
- A call with a complex operand is no call of the catalogue. ``record`` finds that when it looks
  for the signature, so calls of floats pay nothing, and ``complex_numbers.lowered`` records calls
  on the parts: by the operator's linearity, else by the composites of
  ``weft.op.composites.complex_numbers``, which the torch front end reads too.
"""

from __future__ import annotations

from weft.eager.cell import MODE
from weft.eager.dtypes import dtype
from weft.eager.node import (
    CONSTANT,
    RECORDED,
    Node,
    Spec,
    alias_signature,
    simple_signature,
    spec_of,
)
from weft.support.errors import InvalidInputError


def as_pair(node: Node) -> Node:
    """Complex numbers as floats, with a last axis for the two parts."""
    return _seen_as(node, node.sig.out.as_pair())


def as_complex(node: Node) -> Node:
    """Floats, of which the last axis holds the two parts, as complex numbers."""
    spec = node.sig.out
    d: dtype = spec.dtype
    if spec.shape[-1:] != (2,) or d.name not in ("float32", "float64"):
        raise InvalidInputError("complex numbers are pairs of floats",
                                expected="float32 or float64, with a last axis of size 2",
                                got=f"{spec.shape}, {d}")
    return _seen_as(node, spec_of(spec.shape[:-1], d.to_complex(), spec.device))


def _seen_as(node: Node, spec: Spec) -> Node:
    if node.sig.kind == CONSTANT and node.grad is None:
        return Node(simple_signature(CONSTANT, spec), (), node.value, None)
    made = Node(alias_signature(node.sig.out, spec), (node,), node.value, None)
    if node.grad is not None and MODE.grad:
        made.grad = RECORDED
    elif node.value is not None:
        made.args = ()
    return made
