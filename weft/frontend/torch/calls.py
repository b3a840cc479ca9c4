"""Calls of a traced graph: their converters, and their arguments in schema order."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any

import torch
import torch.fx
from torch._ops import HigherOrderOperator, OpOverload

from weft.frontend.torch.callback import called_operator
from weft.frontend.torch.complex_pairs import complex_converter, has_complex
from weft.frontend.torch.control import control_flow
from weft.frontend.torch.registry import ConvertFunction, find_converter
from weft.frontend.torch.spans import body_of

# Assertions about the assumptions of the trace; they return nothing.
_CHECKS = ("_assert_scalar", "_assert_tensor_metadata", "_assert_async", "sym_constrain_range",
           "sym_constrain_range_for_size")
# ``with_effects(token, operator, *arguments)`` calls an operator after earlier ones.
_IN_ORDER = "with_effects"
SIZE_FUNCTIONS = (torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_int, torch.sym_float)


def is_check(node: torch.fx.Node) -> bool:
    """Whether the call is only an assertion."""
    if isinstance(node.target, HigherOrderOperator) and node.target.name() == _IN_ORDER:
        return _packet(node.args[1]) in (*_CHECKS, "_linalg_check_errors")
    return _packet(node.target) in _CHECKS


def _packet(target: Any) -> str:
    return target.overloadpacket.__name__ if isinstance(target, OpOverload) else ""


def needed_nodes(graph: torch.fx.Graph, results: Collection[str] = ()) -> set[torch.fx.Node]:
    """All nodes but assertions, and sizes, comparisons and items that these alone read.

    ``results`` names nodes whose values are asked for.
    """
    needed: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        is_idle = size_function(node) is not None and (
            not any(user in needed for user in node.users) or _is_of_check(node))
        if node.name in results or (not is_check(node) and not is_idle):
            needed.add(node)
    return needed


def _is_of_check(node: torch.fx.Node) -> bool:
    """Whether the node reads a result of an assertion."""
    source = node.args[0] if node.args else None
    return isinstance(source, torch.fx.Node) and is_check(source)


def size_function(node: torch.fx.Node) -> Callable[..., Any] | None:
    """The Python function of a call on sizes or of ``getitem``; ``None`` for other calls."""
    target = node.target
    is_plain = target in SIZE_FUNCTIONS \
        or getattr(target, "__module__", "") in ("_operator", "math")
    return target if is_plain and callable(target) else None


def converter_of(node: torch.fx.Node) -> ConvertFunction | None:
    """The converter of an operator call, or ``None`` if it does not accept the arguments."""
    return _converter(node.target) if isinstance(node.target, OpOverload) else None


def takes_overload(overload: OpOverload) -> bool:
    """Whether a converter accepts the arguments of the overload."""
    return _converter(overload) is not None


def _converter(overload: OpOverload) -> ConvertFunction | None:
    found = find_converter(str(overload))
    count = len(overload._schema.arguments)  # noqa: SLF001 - torch has no public name for it
    return found if found is not None and _takes(found, count) else None


@functools.cache
def _takes(converter: ConvertFunction, count: int) -> bool:
    """Whether ``converter`` accepts a node and ``count`` arguments."""
    try:
        inspect.signature(converter).bind(None, *range(count))
    except TypeError:
        return False
    return True


def is_size_query(node: torch.fx.Node) -> bool:
    """Whether the call queries a size of a tensor."""
    return node.target in (torch.ops.aten.sym_size.int, torch.ops.aten.sym_numel.default)


def attribute_tensor(node: torch.fx.Node) -> torch.Tensor | None:
    """The tensor of a ``get_attr`` node; ``None`` for other nodes and for other attributes."""
    module = node.graph.owning_module
    if node.op != "get_attr" or module is None:
        return None
    value = attrgetter(str(node.target))(module)
    return value if isinstance(value, torch.Tensor) else None


def is_converted(node: torch.fx.Node) -> bool:
    """Whether the importer supports the node."""
    if attribute_tensor(node) is not None or body_of(node) is not None:
        return True
    if node.op != "call_function":
        return False
    if isinstance(node.target, OpOverload) and has_complex(node) and not is_check(node):
        return is_size_query(node) or complex_converter(str(node.target)) is not None
    return is_check(node) or is_size_query(node) or control_flow(node) is not None \
        or size_function(node) is not None \
        or converter_of(node) is not None or called_operator(node) is not None


def bound_arguments(node: torch.fx.Node) -> list[Any]:
    """The arguments in schema order with defaults filled in; keyword-only arguments come last."""
    schema: Sequence[Any] = node.target._schema.arguments  # noqa: SLF001 - torch has no public name for it
    given = list(node.args)
    for argument in schema[len(given):]:
        if argument.name in node.kwargs:
            given.append(node.kwargs[argument.name])
        else:
            given.append(argument.default_value if argument.has_default_value() else None)
    return given
