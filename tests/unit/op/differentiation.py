"""Derivatives of operators, proved over their cases against central differences.

A case becomes the scalar program ``sum(y * w)`` with random cotangents ``w`` for its
floating-point results. The gradient that ``Gradient`` makes of it, through rules, expansions and
decompositions as in any program, must be the slope of the program along a random direction, for
every floating-point argument; ``ForwardMode`` must find the same number by its own rules. The
gradient, times random numbers again, is a scalar program too, whose slope and derivatives in both
modes are compared in the same way: forward over reverse, and reverse over reverse.

``python -m tests.unit.op.differentiation_table`` prints the table of operators.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tests.unit.op.harness import flatten, make_call, make_inputs, output_types, parameters_of
from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import Expr, Function, TupleGetItem, Var
from weft.ir.module import IRModule
from weft.ir.op import Case, Op
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.infer import infer_type
from weft.support.errors import TypeInferenceError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.forward.transform import ForwardMode
from weft.transform.autodiff.reverse.gradient import Gradient

_SEEDS = range(5, 17)
# Of the gradient's own accuracy, and of points that count as smooth.
_RTOL = {"float64": 1e-5, "float32": 2e-3}
_STEP = {"float64": 1e-6, "float32": 4e-3}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A program with one number as result, and a point; ``varied`` are the inputs that may move.

    ``ways`` are random directions for these.
    """

    module: IRModule
    arrays: list[np.ndarray]
    varied: tuple[int, ...]
    ways: dict[int, np.ndarray]
    dtype: str

    def value(self, arrays: Sequence[np.ndarray]) -> float:
        with quiet():
            return float(evaluate(self.module, list(arrays)))

    def difference(self, moving: Sequence[int], step: float) -> float:
        """The central difference along the directions of some inputs, over twice ``step``."""
        ahead, behind = (self.value([
            (a + way * self.ways[i]).astype(a.dtype) if i in moving else a
            for i, a in enumerate(self.arrays)]) for way in (step, -step))
        return (ahead - behind) / (2 * step)

    def slope(self, moving: Sequence[int]) -> float | None:
        """The slope along the directions of some inputs; ``None`` if a kink or a pole is near."""
        step = _STEP[self.dtype]
        near, far = self.difference(moving, step), self.difference(moving, 2 * step)
        is_smooth = np.isfinite([near, far]).all() and abs(near - far) <= self.tolerance(near)
        return near if is_smooth else None

    @property
    def noise(self) -> float:
        """The rounding error of a slope, from the size of the terms of the sum."""
        return self.rounding / _STEP[self.dtype]

    @property
    def rounding(self) -> float:
        """The rounding error of the value, roughly."""
        return float(np.finfo(self.dtype).eps) * max(1.0, abs(self.value(self.arrays))) * 64

    def tolerance(self, slope: float) -> float:
        return _RTOL[self.dtype] * abs(slope) + self.noise


def quiet() -> Any:
    """Without NumPy's warnings."""
    context = warnings.catch_warnings()
    np.seterr(all="ignore")
    return context


class NothingToProveError(Exception):
    """The case has no derivative to compare; the text says why."""


def scalars_of(operator: Op, one: Case) -> Iterator[Scalar]:
    """The case at several points, in float64 where the operator takes it."""
    try:
        yield from map(partial(_scalar, operator, _widened(one)), _SEEDS)
    except TypeInferenceError:
        yield from map(partial(_scalar, operator, one), _SEEDS)


def _scalar(operator: Op, one: Case, seed: int) -> Scalar:
    rng = np.random.default_rng(seed)
    given = [_moved(a, rng) if seed > _SEEDS[0] else a for a in make_inputs(operator, one, seed)]
    call = make_call(operator, one, given)
    arrays = flatten(given)
    if not any(t.dtype.is_float for t in output_types(call.checked_type)):
        raise NothingToProveError("no floating-point result")
    if not any(map(is_float, arrays)):
        raise NothingToProveError("no floating-point argument")
    if not all(np.isfinite(a).all() for a in arrays if is_float(a)):
        raise NothingToProveError("infinities and NaN, which have no neighbours")
    whole = IRModule.from_expr(Function(parameters_of(call), call))
    return weighted(whole, arrays, rng)


def _moved(value: Any, rng: np.random.Generator) -> Any:
    """A point near ``value``: given arrays may hold ties on purpose."""
    if isinstance(value, tuple):
        return tuple(_moved(v, rng) for v in value)
    if not is_float(value):
        return value
    return (value + 1e-3 * rng.uniform(-1, 1, value.shape)).astype(value.dtype)


def weighted(module: IRModule, arrays: list[np.ndarray], rng: np.random.Generator) -> Scalar:
    """The sum of the floating-point results of ``main``, each times a new random input."""
    typed = infer_type(module)
    main = typed["main"]
    with quiet():
        results = flatten_results(evaluate(typed, list(arrays)))
    fields = [(f, t, r) for (f, t), r in zip(_fields(main.body), results, strict=True)
              if t.dtype.is_float]
    weights = [Var(f"w{len(arrays)}_{n}", t) for n, (_, t, _) in enumerate(fields)]
    total: Expr | None = None
    for (field, _, _), weight in zip(fields, weights, strict=True):
        term = op.cast(op.sum(op.multiply(field, weight)), dtype="float64")
        total = term if total is None else op.add(total, term)
    assert total is not None
    program = typed.with_functions({"main": Function((*main.params, *weights), total)})
    arriving = [np.asarray(rng.uniform(-1, 1, r.shape)).astype(r.dtype) for _, _, r in fields]
    inputs = [*arrays, *arriving]
    varied = tuple(i for i, a in enumerate(inputs) if is_float(a))
    ways = {i: np.asarray(rng.uniform(-1, 1, inputs[i].shape)) for i in varied}
    dtypes = {inputs[i].dtype.name for i in varied}
    return Scalar(infer_type(program), inputs, varied, ways,
                  "float64" if dtypes == {"float64"} else "float32")


def _fields(value: Expr) -> list[tuple[Expr, TensorType]]:
    """The tensors in a value of nested tuples."""
    pending: list[Expr] = [value]
    found: list[tuple[Expr, TensorType]] = []
    while pending:
        node = pending.pop(0)
        type_ = node.checked_type
        if isinstance(type_, TupleType):
            pending = [*(TupleGetItem(node, n, checked_type=field)
                         for n, field in enumerate(type_.fields)), *pending]
        else:
            assert isinstance(type_, TensorType)
            found.append((node, type_))
    return found


def flatten_results(value: Any) -> list[np.ndarray]:
    """The arrays in nested tuples."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in flatten_results(part)]
    return [np.asarray(value)]


def is_float(array: np.ndarray) -> bool:
    return DType.of(array.dtype).is_float


def _widened(one: Case) -> Case:
    """The case in float64."""
    wide = tuple("float64" if DType.of(d).is_float else d for d in one.dtypes)
    attrs = {k: "float64" if k in ("dtype", "out_dtype") and v is not None
             and DType.of(v).is_float else v for k, v in one.attrs.items()}
    return dataclasses.replace(one, dtypes=wide, attrs=attrs,
                               inputs=tuple(map(_widened_input, one.inputs)))


def _widened_input(spec: Any) -> Any:
    if isinstance(spec, list):
        return [_widened_input(s) for s in spec]
    is_array = isinstance(spec, (np.ndarray, np.generic))
    return np.asarray(spec, np.float64) if is_array and is_float(np.asarray(spec)) else spec


def smooth_point(operator: Op, one: Case) -> tuple[Scalar, dict[int, float]]:
    """A point of the case away from kinks, and the slope there along each input."""
    for scalar in scalars_of(operator, one):
        slopes: dict[int, float] = {}
        for position in scalar.varied:
            slope = scalar.slope((position,))
            if slope is None:
                break
            slopes[position] = slope
        else:
            return scalar, slopes
    raise NothingToProveError("no point without a kink near")


def gradient_of(scalar: Scalar) -> tuple[IRModule, dict[int, np.ndarray]]:
    """The program of value and gradients, and the gradients of the varied inputs at the point."""
    program = Gradient(training=False)(scalar.module)
    with quiet():
        value, found = evaluate(program, scalar.arrays)
    here = scalar.value(scalar.arrays)
    assert abs(float(value) - here) <= scalar.rounding, "the gradient program has another value"
    return program, {i: np.asarray(f) for i, f in zip(scalar.varied, found, strict=True)}


def tangent_of(scalar: Scalar, moving: Sequence[int]) -> float:
    """The derivative along the directions of some inputs, by forward mode."""
    program = ForwardMode(training=False)(scalar.module)
    tangents = [(scalar.ways[i] * (i in moving)).astype(scalar.arrays[i].dtype)
                for i in scalar.varied]
    with quiet():
        value, found = evaluate(program, [*scalar.arrays, *tangents])
    here = scalar.value(scalar.arrays)
    assert abs(float(value) - here) <= scalar.rounding, "the tangent program has another value"
    return float(found)


def along(scalar: Scalar, gradients: dict[int, np.ndarray], moving: Sequence[int]) -> float:
    """The derivative along the directions of some inputs, by the gradients."""
    for position in moving:
        assert gradients[position].shape == scalar.arrays[position].shape
    return sum(float((gradients[i] * scalar.ways[i]).sum()) for i in moving)


def check(scalar: Scalar, found: float, slope: float, what: str) -> None:
    """Compare a derivative with a difference."""
    assert abs(found - slope) <= scalar.tolerance(slope), (
        f"{what} says {found}, the slope is {slope}")


def check_modes(scalar: Scalar, forward: float, reverse: float) -> None:
    """The dot product test: forward and reverse mode differ by rounding alone."""
    limit = scalar.rounding + 1e4 * float(np.finfo(scalar.dtype).eps) * abs(reverse)
    assert abs(forward - reverse) <= limit, f"forward mode says {forward}, reverse mode {reverse}"


def second_order(scalar: Scalar, program: IRModule) -> Scalar:
    """The weighted sum of the gradients, as a scalar program."""
    main = program["main"]
    grads = TupleGetItem(main.body, 1)
    first = program.with_functions({"main": Function(main.params, grads)})
    return weighted(first, scalar.arrays, np.random.default_rng(3))


def prove(operator: Op, one: Case, *, orders: int = 2, constant: Sequence[str] = ()) -> int:
    """Check derivatives up to an order, in both modes; the number of orders proved.

    The gradients of the inputs ``constant`` are zero by convention, though their slopes are not.
    Raises ``AssertionError`` for a wrong derivative, ``WeftError`` for a missing one,
    ``NothingToProveError`` where there is none.
    """
    scalar, slopes = smooth_point(operator, one)
    fixed = tuple(operator.inputs.index(name) for name in constant)
    program, gradients = gradient_of(scalar)
    for position, slope in slopes.items():
        found = along(scalar, gradients, (position,))
        if position in fixed:
            assert found == 0 != slope, "listed as constant, but has a gradient"
        else:
            check(scalar, found, slope, f"the gradient of input {position}")
    moving = tuple(i for i in scalar.varied if i not in fixed)
    check_modes(scalar, tangent_of(scalar, moving), along(scalar, gradients, moving))
    if orders == 1:
        return 1
    second = second_order(scalar, program)
    moving = tuple(i for i in second.varied if i not in fixed)
    slope = second.slope(moving)
    assert slope is not None, "the gradient has a kink near the point"
    forward = tangent_of(second, moving)
    check(second, forward, slope, "the second order, forward over reverse,")
    check_modes(second, forward, along(second, gradient_of(second)[1], moving))
    return 2
