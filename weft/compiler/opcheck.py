"""Checking an operator against its specification, also for operators outside weft.

For each case of ``op.spec``: the relation gives the type of the reference's result; every
implementation computes that result without an access out of bounds; so does the machine code; the
call survives printing and parsing; the gradient agrees with finite differences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.compiler.api import compile
from weft.ir import Case, DType, IRModule, Op, TensorType, TupleType, dims_equal, get_op, parse
from weft.ir.dynamic import depends_on_data
from weft.ir.expr import Call, Expr, Function, Tuple, Var, var
from weft.ir.structural import assert_structural_equal
from weft.ir.typing.infer import infer_expr, infer_type
from weft.strategy import implementations, lower_function
from weft.support.dataclass import dataclass
from weft.support.errors import OperatorError, PassError, TypeInferenceError
from weft.support.markup import html_table
from weft.support.user_code import location_of
from weft.target import Target
from weft.tir import eval as tir_eval
from weft.tir.foreign_kernel import foreign_kernels_of
from weft.transform.autodiff.reverse.gradient_contract import checked_gradients

_TOLERANCE = {"float16": 2e-2, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-10}
_STEP = 1e-6


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """The checks that passed."""

    name: str
    cases: int
    implementations: tuple[str, ...]
    has_gradient: bool

    def __str__(self) -> str:
        gradient = "gradient checked" if self.has_gradient else "no gradient"
        return (f"{self.name}: {self.cases} cases on {', '.join(self.implementations)}; "
                f"{gradient}")

    def _repr_html_(self) -> str:
        return html_table(("operator", "cases", "implementations", "gradient"),
                          [(self.name, self.cases, ", ".join(self.implementations),
                            "checked" if self.has_gradient else "none")], numeric=(1,))


def opcheck(op: Op | str, target: str | Target | None = None) -> OperatorReport:
    """Check ``op`` (or the operator of that name) on its own cases; random numbers are seeded.

    Raises ``OperatorError`` with the case, the expected and the found value, and the line in the
    user's file.
    """
    operator = get_op(op) if isinstance(op, str) else op
    machine = Target.of(target)
    if operator.reference is None or not operator.cases:
        raise OperatorError(f"{operator.name} states no cases to check",
                            help="state them: op.spec(numpy_reference, op_case((3, 5)), ...)")
    checks = [_CaseCheck(operator, one, number, machine)
              for number, one in enumerate(operator.cases)]
    names = {name: None for check in checks for name in check.run()}
    has_gradient = operator.gradient_rule is not None
    return OperatorReport(operator.name, len(checks), tuple(names), has_gradient)


class _CaseCheck:
    """One case: its inputs, the typed call, and the results of the reference."""

    def __init__(self, op: Op, one: Case, number: int, target: Target) -> None:
        self.op, self.one, self.target = op, one, target
        self.where = f"case {number} of {op.name}"
        self.arrays = random_arguments(one)
        self.call = typed_call(op, one, self.arrays)
        self.flat = [a for group in self.arrays for a in _as_tuple(group)]
        self.function = Function(variables_of(self.call), self.call)
        attrs = dict(self.call.attrs.items())
        self.expected = _as_tuple(self._value(*self.arrays, **attrs))

    @property
    def _value(self) -> Any:
        return self.op.reference

    def run(self) -> list[str]:
        """The names of the implementations that were checked."""
        self._types()
        self._text()
        names = [] if depends_on_data(self.op) else self._loop_programs()
        compiled = compile(self.function, target=self.target)(*self.flat)
        self._compare("machine code", _as_tuple(compiled))
        if self._is_differentiable():
            self._gradient()
        return names

    def _is_differentiable(self) -> bool:
        """Whether the gradient is compared: a float tensor from float32 tensors."""
        return (self.op.gradient_rule is not None and self.one.dtypes == ("float32",)
                and isinstance(self.call.checked_type, TensorType)
                and self.call.checked_type.dtype.is_float
                and all(isinstance(a, np.ndarray) for a in self.arrays)
                and not any(isinstance(given, np.ndarray | np.generic) and given.dtype == np.float32
                            for given in self.one.inputs))

    def _types(self) -> None:
        type_ = self.call.checked_type
        types = type_.fields if isinstance(type_, TupleType) else (type_,)
        found = [f"{e.shape} {e.dtype}" for e in self.expected]
        fits = len(types) == len(self.expected) and all(map(_fits, types, self.expected))
        if not fits:
            raise OperatorError(
                f"the relation of {self.op.name} gives another type than its reference",
                where=location_of(self.op.compute or self._value),
                expected=f"{', '.join(found)}, as the reference",
                got=", ".join(map(str, types)),
                notes=(self.where, f"relation: {location_of(self.op.relation or self._value)}"),
            )

    def _text(self) -> None:
        module = infer_type(IRModule.from_expr(self.function))
        assert_structural_equal(module, infer_type(parse(str(module))))

    def _loop_programs(self) -> list[str]:
        function = self.function.replace(attrs={"primitive": True})
        offered = implementations(self.call, self.target)
        for implementation in offered:
            kernel = lower_function(function, self.target, implementation=implementation).func
            if foreign_kernels_of(kernel):
                continue  # its meaning is machine code alone
            results = [np.zeros(e.shape, e.dtype) for e in self.expected]
            tir_eval.evaluate(kernel, *self.flat, *results)
            self._compare(implementation.name, results)
        return [i.name for i in offered]

    def _compare(self, what: str, results: Sequence[np.ndarray]) -> None:
        for number, (found, wanted) in enumerate(zip(results, self.expected, strict=True)):
            tolerance = _TOLERANCE.get(wanted.dtype.name, 0.0)
            rtol = tolerance if self.one.rtol is None else self.one.rtol
            atol = tolerance if self.one.atol is None else self.one.atol
            close = np.isclose(*(a.astype(np.float64) for a in (found, wanted)), rtol=rtol,
                               atol=atol, equal_nan=True)
            if not close.all():
                index = tuple(int(i) for i in np.argwhere(~close)[0])
                extent = (f"{(~close).sum()} of {close.size} elements differ, the first at "
                          f"{list(index)} of output {number}")
                raise OperatorError(
                    f"{what} computes something else than the reference of {self.op.name}",
                    where=location_of(self._value), expected=wanted[index],
                    got=found[index],
                    notes=(self.where, extent),
                )

    def _gradient(self) -> None:
        """The gradient in one random direction against central differences, in float64."""
        try:
            self._compare_slopes("float64", tolerance=1e-5)
        except TypeInferenceError:  # the gradient contains float32 constants
            self._compare_slopes("float32", tolerance=1e-3)
        except PassError:
            return  # it refuses such calls (blocked channels, for example)

    def _compare_slopes(self, dtype: str, tolerance: float) -> None:
        arrays = random_arguments(dataclasses.replace(self.one, dtypes=(dtype,)))
        call = typed_call(self.op, self.one, arrays)
        rng = np.random.default_rng(1)
        attrs = dict(call.attrs.items())
        exact = [a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays]

        def value(index: int, moved: np.ndarray) -> np.ndarray:
            return self._value(*exact[:index], moved, *exact[index + 1:], **attrs)

        weights = rng.uniform(-1, 1, np.shape(value(0, exact[0]))).astype(dtype)
        dy = var("dy", weights.shape, dtype)
        grads = checked_gradients(call, self.op, self._rule(), dy)
        for index, grad in enumerate(grads):
            if arrays[index].dtype.kind != "f":
                continue  # indices and shapes are not differentiable
            compiled = compile(Function((*variables_of(call), dy), grad), target=self.target)
            direction = rng.uniform(-1, 1, arrays[index].shape)
            ahead, behind = (value(index, exact[index] + sign * _STEP * direction)
                             for sign in (1, -1))
            slope = float(((ahead - behind) * weights).sum() / (2 * _STEP))
            found = float((compiled(*arrays, weights) * direction).sum())
            if not np.isclose(found, slope, rtol=tolerance, atol=tolerance / 100):
                raise OperatorError(
                    f"the gradient of {self.op.name} with respect to {self.op.inputs[index]} "
                    "is not the slope of its reference", where=location_of(self._rule()),
                    expected=f"{slope:.6g} in a random direction", got=f"{found:.6g}",
                    notes=(self.where,),
                )

    def _rule(self) -> Any:
        return self.op.gradient_rule


def random_arguments(one: Case, seed: int = 0) -> list[Any]:
    """A random array, or a tuple of arrays, per argument, with the case's dtypes and bounds."""
    rng = np.random.default_rng(seed)
    names = one.dtypes + (one.dtypes[-1],) * len(one.inputs)

    def make(spec: Any, dtype: DType) -> Any:
        if isinstance(spec, list):
            return tuple(make(s, dtype) for s in spec)
        if isinstance(spec, np.ndarray | np.generic):
            return np.asarray(spec)
        if dtype.is_bool:
            return rng.integers(0, 2, spec).astype(bool)
        if dtype.is_int:
            return rng.integers(int(one.low), int(one.high) + 1, spec).astype(dtype.numpy)
        return np.asarray(rng.uniform(one.low, one.high, spec)).astype(dtype.numpy)

    return [make(spec, DType.of(name)) for spec, name in zip(one.inputs, names, strict=False)]


def typed_call(op: Op, one: Case, arrays: Sequence[Any]) -> Call:
    """The typed call of a case, over variables with the types of ``arrays``."""
    def variable(name: str, value: Any) -> Expr:
        if isinstance(value, tuple):
            return Tuple(tuple(variable(f"{name}_{i}", v) for i, v in enumerate(value)))
        return var(name, value.shape, DType.of(value.dtype))

    args = [variable(name.lstrip("*"), a) for name, a in zip(op.inputs, arrays, strict=True)]
    typed = infer_expr(op(*args, **one.attrs))
    if not isinstance(typed, Call):
        raise OperatorError(f"{op.name}(...) is not a call", got=type(typed).__name__)
    return typed


def variables_of(call: Call) -> tuple[Var, ...]:
    """The variables of a ``typed_call``, with tuples flattened."""
    fields = (f for a in call.args for f in (a.fields if isinstance(a, Tuple) else (a,)))
    return tuple(f for f in fields if isinstance(f, Var))


def _as_tuple(value: Any) -> tuple[np.ndarray, ...]:
    return tuple(map(np.asarray, value)) if isinstance(value, tuple | list) else (
        np.asarray(value),)


def _fits(type_: Any, array: np.ndarray) -> bool:
    return isinstance(type_, TensorType) and type_.dtype.numpy == array.dtype and (
        type_.ndim == array.ndim) and all(
        dims_equal(a, b) is not False for a, b in zip(type_.shape, array.shape, strict=True))
