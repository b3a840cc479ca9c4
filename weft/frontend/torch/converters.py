"""All converters of ATen operators, and how ``weft.torch_converter`` makes those of users.

Importing this module registers the converters of weft, which those of users replace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from weft.frontend.common.registry import import_converters
from weft.frontend.common.typed import tensor_type
from weft.frontend.common.user_converters import UserConverter, attribute_names, typed_results
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import register
from weft.ir.expr import Expr
from weft.support.errors import OperatorError, RegistryError

import_converters("weft.frontend.torch.aten")


def register_converter(name: str, function: UserConverter) -> None:
    """Register what ``weft.torch_converter(name)`` decorates.

    Raises ``RegistryError`` for a name without a library.
    """
    library, _, own = name.partition("::")
    if not library or not own:
        raise RegistryError("not the name of an operator", got=repr(name),
                            expected='such as "my_library::twice"')
    register(own if library == "aten" else f"{library}.{own}", _converter(function))


def _converter(function: UserConverter) -> Callable[..., Any]:
    named = attribute_names(function)

    def convert(node: Node, *arguments: Any) -> Any:
        names = _argument_names(node.op)
        pairs = list(zip(names, arguments, strict=True))
        made = function(node, *(value for name, value in pairs if name not in named),
                        **{name: value for name, value in pairs if name in named})
        results = typed_results(made, node.op, node.span)
        _check(node, results)
        return results if isinstance(node.result, (tuple, list)) else results[0]

    convert.__module__ = function.__module__  # which says that a user registered it
    return convert


def _argument_names(op: str) -> list[str]:
    library, name, overload = op.split(".", 2)
    target = getattr(getattr(getattr(torch.ops, library), name), overload)
    return [argument.name for argument in target._schema.arguments]  # noqa: SLF001 - torch has no public name for it


def _check(node: Node, results: Sequence[Expr]) -> None:
    """Raise ``OperatorError`` for results that differ from those that torch traced."""
    traced = node.result if isinstance(node.result, (tuple, list)) else (node.result,)
    expected = [(dtype_of(t.dtype, f"the result of {node.op}", node.span), t.dim())
                for t in traced if isinstance(t, torch.Tensor)]
    found = [(tensor_type(r).dtype, tensor_type(r).ndim) for r in results]
    if len(expected) == len(traced) and found != expected:
        raise OperatorError(
            f"the converter of {node.op} returned other types than the operator",
            where=node.span, expected=_shown(expected), got=_shown(found))


def _shown(types: Sequence[tuple[Any, int]]) -> str:
    return ", ".join(f"{dtype} of rank {rank}" for dtype, rank in types)
