"""The definition of special functions of one tensor; reference and compute share the formulas."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.ir.op import Case, GradientRule, Op
from weft.op.families import unary
from weft.topi.special.arithmetic import Function, of_elements, on_arrays


def special(name: str, function: Function, *, doc: str, cases: Sequence[Case],
            grad: GradientRule | None = None) -> Op:
    """The operator ``special.<name>``; ``function`` takes an arithmetic and an element."""

    def reference(x: np.ndarray) -> np.ndarray:
        return on_arrays(function, x)

    return unary(f"special.{name}", reference, doc=doc, cases=cases, grad=grad,
                 compute=lambda x: of_elements(function, (x,), name))
