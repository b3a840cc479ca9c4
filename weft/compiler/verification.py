"""``WEFT_VERIFY=3``: a pass must not change what a program computes."""

from __future__ import annotations

import numpy as np

from weft.ir import IRModule, TensorType
from weft.ir.expr import Var
from weft.ir.types import is_static
from weft.support.config import config
from weft.support.errors import InternalError
from weft.transform import evaluate
from weft.transform.graph import type_of
from weft.transform.reference import Data

# Passes reassociate sums (folded scales, blocked layouts), so equality is up to rounding.
_RELATIVE = 1e-3
_ABSOLUTE = 1e-4


def random_input(parameter: Var, generator: np.random.Generator) -> np.ndarray:
    """A value of the parameter's type: normal floats, small integers, coin flips."""
    type_ = parameter.checked_type or parameter.annotation
    if not isinstance(type_, TensorType):
        raise InternalError(f"no random value for %{parameter.name}", got=str(type_))
    return random_array(type_, generator)


def random_array(type_: TensorType, generator: np.random.Generator) -> np.ndarray:
    """A random array of a tensor type of fixed shape."""
    shape, dtype = type_.concrete_shape, type_.dtype.numpy
    if type_.dtype.code.startswith(("float", "bfloat")):
        return generator.standard_normal(shape).astype(dtype)
    return generator.integers(0, 2 if type_.dtype.code == "bool" else 8, shape).astype(dtype)


def compare_modules(before: IRModule, after: IRModule) -> None:
    """Evaluate both on the same random inputs; ``InternalError`` where they differ.

    Programs whose inputs have no random values (tuples, open sizes) are not compared.
    """
    types = [type_of(p) for p in before["main"].params]
    if not all(isinstance(t, TensorType) and is_static(t) for t in types):
        return
    generator = np.random.default_rng(config.seed)
    inputs = [random_input(p, generator) for p in before["main"].params]
    expected = _arrays(evaluate(before, inputs))
    got = _arrays(evaluate(after, inputs))
    for number, (x, y) in enumerate(zip(expected, got, strict=True)):
        scale = float(np.max(np.abs(x[np.isfinite(x)]), initial=1.0))
        if not np.allclose(x, y, rtol=_RELATIVE, atol=_ABSOLUTE * scale, equal_nan=True):
            raise InternalError(
                "a pass changed what the program computes",
                where=f"output {number}",
                got=f"a difference of up to {np.nanmax(np.abs(x - y)):.3g}",
                help="WEFT_PRINT_AFTER=all shows the programs; report this with the model",
            )


def _arrays(value: object) -> list[np.ndarray]:
    """The tensors in a value; of a data type also which constructors made it."""
    found: list[np.ndarray] = []
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, tuple):
            pending.extend(reversed(current))
        elif isinstance(current, Data):
            pending.extend((*reversed(current.fields), current.constructor.tag))
        else:
            array = np.asarray(current)
            found.append(array.astype(np.float64) if array.dtype.kind in "fV" else array)
    return found
