"""The cases of operators with symbols for sizes."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.unit.op.harness import flatten, make_inputs
from weft.ir.dtype import DType
from weft.ir.expr import Call, Expr, Tuple, var
from weft.ir.op import Case, Op
from weft.ir.shape import SymDim
from weft.ir.typing.infer import infer_expr
from weft.support.errors import WeftError


@dataclass(frozen=True)
class SymbolicCase:
    """A call in which sizes are symbols (equal sizes are one symbol), and what they stand for."""

    call: Call
    arrays: list[Any]
    sizes: Mapping[str, int]


def symbolic_case(op: Op, one: Case) -> SymbolicCase:
    """The typed call of a case with as many symbols as the operator accepts.

    A size that the operator needs fixed (four numbers of a box), or to be a multiple or not below
    a bound, has a symbol with such a range, or none.
    """
    arrays = make_inputs(op, one)
    sizes = sorted({s for a in flatten(arrays) for s in a.shape if s > 1})
    chosen = {size: f"s{size}" for size in sizes}
    call = _call(op, one, arrays, chosen)
    if call is None:
        chosen = {}
        for size in sizes:
            for text in (f"s{size}", f"s{size}{{{size}..}}", f"s{size}{{{size}..%{size}}}"):
                if _call(op, one, arrays, {**chosen, size: text}) is not None:
                    chosen[size] = text
                    break
        call = _call(op, one, arrays, chosen)
    assert call is not None
    return SymbolicCase(call, arrays, {f"s{size}": size for size in chosen})


def _call(op: Op, one: Case, arrays: list[Any], symbols: Mapping[int, str]) -> Call | None:
    """The typed call, ``None`` if the operator refuses it."""
    args = [_variable(f"x{n}", array, symbols) for n, array in enumerate(arrays)]
    hints = typing.get_type_hints(op.attrs_type)
    attrs = {key: _symbolic(value, symbols) if "SymDim" in str(hints[key]) else value
             for key, value in one.attrs.items()}
    try:
        call = infer_expr(op(*args, **attrs))
    except WeftError:
        return None
    assert isinstance(call, Call)
    return call


def _variable(name: str, value: Any, symbols: Mapping[int, str]) -> Expr:
    if isinstance(value, tuple):
        return Tuple(tuple(_variable(f"{name}_{n}", v, symbols) for n, v in enumerate(value)))
    return var(name, tuple(_symbolic(size, symbols) for size in value.shape),
               DType.of(value.dtype))


def _symbolic(value: Any, symbols: Mapping[int, str]) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_symbolic(item, symbols) for item in value)
    if isinstance(value, int) and value in symbols:
        return SymDim.symbol(symbols[value])
    return value
