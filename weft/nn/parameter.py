"""Parameter: a tensor that a module owns and that training changes."""

from __future__ import annotations

from typing import Any

from weft.eager.tensor import Tensor


class Parameter(Tensor):
    """A tensor that requires a gradient, and registers itself as an attribute of a module."""

    def __init__(self, data: Any = (), requires_grad: bool = True) -> None:
        super().__init__(data, requires_grad=requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"
