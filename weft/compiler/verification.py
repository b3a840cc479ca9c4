"""``WEFT_VERIFY=3``: a pass must not change what a program computes."""

from __future__ import annotations

import numpy as np

from weft.ir import IRModule, TensorType
from weft.ir.expr import Var
from weft.support.config import config
from weft.support.errors import InternalError
from weft.transform import evaluate

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
    """Evaluate both on the same random inputs; ``InternalError`` where they differ."""
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
    if isinstance(value, tuple):
        return [array for item in value for array in _arrays(item)]
    array = np.asarray(value)
    return [array.astype(np.float64) if array.dtype.kind in "fV" else array]
