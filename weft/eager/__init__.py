"""Tensors that are recorded lazily and run compiled; gradients, traced functions, training steps.

The layers, lowest first: ``node`` (recorded calls), ``cell`` (what a tensor refers to),
``evaluate`` (cuts of the graph, compiled once), ``record``, ``functions``,
``tensor``, ``autograd``.
"""

from __future__ import annotations

from weft.eager.tensor import Tensor

__all__ = ["Tensor"]
