"""One converter on its own: what it builds for given tensors, beside what torch computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import find_converter
from weft.ir.expr import Expr, Function, Tuple, Var
from weft.ir.module import IRModule
from weft.ir.span import Span
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_type
from weft.transform import evaluate


def compare(overload: Any, *args: Any, rtol: float = 1e-4, atol: float = 1e-5,
            results: Sequence[int] | None = None) -> None:
    """The results of ``overload(*args)`` from its converter; ``results`` names those that count.

    Arguments are in the order of the schema, all of them given.
    """
    expected = overload(*args[:_positional(overload)], **_named(overload, args))
    listed = list(expected) if isinstance(expected, (tuple, list)) else [expected]
    params: list[Var] = []
    values = [_value(a, params) for a in args]
    converter = find_converter(str(overload))
    assert converter is not None, f"{overload} has no converter"
    made = converter(Node(str(overload), Span("<test>"), args, expected), *values)
    fields = list(made) if isinstance(made, tuple) else [made]
    chosen = range(len(listed)) if results is None else results
    body = Tuple(tuple(f for f in (fields[i] for i in chosen) if isinstance(f, Expr)))
    mod = infer_type(IRModule({"main": Function(tuple(params), body)}))
    found = evaluate(mod, [a.numpy() for a in _tensors(args)])
    for got, i in zip(found, chosen, strict=True):
        wanted = listed[i].numpy()
        assert np.asarray(got).dtype == wanted.dtype, f"result {i} of {overload}"
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=atol,
                                   err_msg=f"result {i} of {overload} for {_told(args)}")


def _positional(overload: Any) -> int:
    return sum(not a.kwarg_only for a in overload._schema.arguments)


def _named(overload: Any, args: Sequence[Any]) -> dict[str, Any]:
    pairs = zip(overload._schema.arguments, args, strict=True)
    return {a.name: value for a, value in pairs if a.kwarg_only}


def _value(argument: Any, params: list[Var]) -> Any:
    if isinstance(argument, torch.Tensor):
        type_ = TensorType(tuple(argument.shape), dtype_of(argument.dtype, "an argument"))
        params.append(Var(f"x{len(params)}", type_).with_type(type_))
        return params[-1]
    return [_value(a, params) for a in argument] if isinstance(argument, list) else argument


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    return [a for a in args if isinstance(a, torch.Tensor)]


def _told(args: Sequence[Any]) -> str:
    return ", ".join(str(tuple(a.shape)) if isinstance(a, torch.Tensor) else repr(a) for a in args)
