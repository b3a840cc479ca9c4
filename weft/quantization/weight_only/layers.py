"""The layers of a program whose constant weights can be in blocks, and the program with blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

import numpy as np

from weft import op
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Op,
    TensorType,
    children,
    infer_expr,
    post_order,
)
from weft.ir.analysis import known_type
from weft.op.nn.constant_weights import WeightUse
from weft.quantization.names import layer_name
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import enters, op_name, rewrite_function


@dataclass(eq=False, slots=True)
class Layer:
    """A constant matrix and the calls that read it; ``is_table`` if they take its rows."""

    name: str
    operator: str
    weight: Constant
    by_rows: bool  # (N, K): a row per output
    is_table: bool = False
    calls: list[Call] = field(default_factory=list)

    @property
    def matrix(self) -> np.ndarray:
        """The weight as float32 [N, K]."""
        data = self.weight.data if self.by_rows else self.weight.data.T
        return np.ascontiguousarray(data, np.float32)

    @property
    def shape(self) -> tuple[int, int]:
        rows, depth = self.weight.data.shape if self.by_rows else self.weight.data.shape[::-1]
        return rows, depth


@dataclass(frozen=True, slots=True)
class Blocks:
    """A weight in blocks, and the factors of its columns that its data is divided by."""

    constant: Constant
    format: str
    factors: np.ndarray | None = None


def layers_of(module: IRModule, *, tables: bool) -> list[Layer]:
    """The layers in the order of the program; ``tables``: also those that rows are taken of."""
    found: dict[tuple[int, bool, bool], Layer] = {}
    names: dict[str, int] = {}
    for function in module.functions.values():
        for node in post_order(function, enter=enters):
            if not isinstance(node, Call):
                continue
            operand = _operand(node)
            if operand is None or (operand[2] and not tables):
                continue
            weight, by_rows, is_table = operand
            key = id(weight), by_rows, is_table
            if key not in found:
                name = _free(layer_name(node, weight), names)
                found[key] = Layer(name, op_name(node), weight, by_rows, is_table)
            found[key].calls.append(node)
    return list(found.values())


def _free(name: str, names: dict[str, int]) -> str:
    """``name`` with a number if another layer has it."""
    count = names[name] = names.get(name, -1) + 1
    return f"{name}_{count}" if count else name


def _operand(call: Call) -> tuple[Constant, bool, bool] | None:
    """The constant matrix of a call, whether its rows are outputs, and whether it is a table."""
    rule = call.op.hook("weight_use") if isinstance(call.op, Op) else None
    use: WeightUse | None = None if rule is None else rule(call)
    if use is None:
        return None
    weight, is_transposed = call.args[use.operand], False
    if op_name(weight) == "transpose" and getattr(weight, "attrs").axes in ((1, 0), None):  # noqa: B009
        weight, is_transposed = weight.args[0], True  # type: ignore[attr-defined]
    if not isinstance(weight, Constant) or weight.data.ndim != 2 or not _is_float(weight):
        return None
    if use.is_table:
        return None if is_transposed else (weight, True, True)
    if known_type(call).dtype != known_type(data_of(call)).dtype:  # type: ignore[union-attr]
        return None
    return weight, use.by_rows != is_transposed, False


def _is_float(weight: Constant) -> bool:
    return weight.tensor_type.dtype.is_float


def data_of(call: Call) -> Expr:
    """The data that a call multiplies."""
    return call.args[0]


def with_blocks(module: IRModule, blocks: Mapping[Layer, Blocks]) -> IRModule:
    """The module whose layers read ``blocks``."""
    by_call = {call: (layer, made) for layer, made in blocks.items() for call in layer.calls}
    functions = {}
    for name, function in module.functions.items():
        folded = _foldable_norms(function, by_call)
        functions[name] = rewrite_function(function, _Step(by_call, folded))
    return replace(module, functions=functions, settled={}, named={})


class _Step:
    """Rewrites one call; the data of layers with factors is divided once for all its readers."""

    def __init__(self, by_call: Mapping[Call, tuple[Layer, Blocks]],
                 folded: Mapping[Expr, np.ndarray]) -> None:
        self._by_call = by_call
        self._folded = folded
        self._divided: dict[tuple[Expr, int], Expr] = {}

    def __call__(self, node: Expr, rebuilt: Expr) -> Expr:
        if node in self._folded and isinstance(rebuilt, Call):
            return _divided_norm(rebuilt, self._folded[node])
        if not isinstance(node, Call) or not isinstance(rebuilt, Call):
            return rebuilt
        found = self._by_call.get(node)
        if found is None:
            return rebuilt
        layer, blocks = found
        if layer.is_table:
            rows = rebuilt.replace(args=(blocks.constant, rebuilt.args[1]), checked_type=None)
            made = op.nn.block_dequantize(infer_expr(rows), format=blocks.format,
                                          dtype=layer.weight.tensor_type.dtype)
        else:
            data = rebuilt.args[0]
            if blocks.factors is not None and node.args[0] not in self._folded:
                data = self._over(data, blocks.factors)
            made = op.nn.block_quantized_dense(data, blocks.constant, format=blocks.format)
        return infer_expr(made, trust=True).replace(span=node.span)

    def _over(self, data: Expr, factors: np.ndarray) -> Expr:
        key = data, id(factors)
        if key not in self._divided:
            type_ = known_type(data)
            assert isinstance(type_, TensorType)
            inverse = Constant((1 / factors).astype(type_.dtype.numpy))
            self._divided[key] = infer_expr(op.multiply(data, inverse), trust=True)
        return self._divided[key]


def _foldable_norms(function: Function, by_call: Mapping[Call, tuple[Layer, Blocks]]
                    ) -> dict[Expr, np.ndarray]:
    """The norms whose constants can be divided by the factors of all their readers."""
    readers: dict[Expr, list[Expr]] = {}
    for node in post_order(function, enter=enters):
        if isinstance(node, Call):
            for arg in node.args:
                readers.setdefault(arg, []).append(node)
        else:
            for child in children(node):
                readers.setdefault(child, []).append(node)
    found: dict[Expr, np.ndarray] = {}
    for data, users in readers.items():
        if not isinstance(data, Call) or not _column_factors(data) or not all(
                isinstance(data.args[i], Constant) for i in _column_factors(data)):
            continue
        given = [by_call[user][1].factors if isinstance(user, Call) and user in by_call else None
                 for user in users]
        first = given[0]
        if first is not None and all(one is first for one in given):
            found[data] = first
    return found


def _column_factors(call: Call) -> tuple[int, ...]:
    """The operands of a norm that scale and shift the columns of its result."""
    found: tuple[int, ...] | None = call.op.hook("column_factors") if isinstance(call.op, Op) \
        else None
    return found or ()


def _divided_norm(call: Call, factors: np.ndarray) -> Call:
    args = list(call.args)
    for i in _column_factors(call):
        constant = args[i]
        assert isinstance(constant, Constant)
        args[i] = Constant((constant.data.astype(np.float32) / factors)
                           .astype(constant.data.dtype), span=constant.span)
    return call.replace(args=tuple(args))
