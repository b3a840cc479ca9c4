"""Check whether weft supports a call of a traced graph, by converting it alone.

The operator's name is not enough: a converter may not support a dtype, an attribute or a result.
So the converter runs on variables of the traced argument types, and the types of its results are
compared with those that torch traced.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
import torch.fx
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor

from weft.frontend.torch import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.torch.calls import (
    attribute_tensor,
    bound_arguments,
    converter_of,
    is_check,
    is_size_query,
    size_function,
)
from weft.frontend.torch.dtypes import dtype_of, has_dtype
from weft.frontend.torch.node import Node
from weft.frontend.torch.spans import span_of, target_name
from weft.ir import Expr, TensorType, Var
from weft.support.errors import WeftError

Refusals: TypeAlias = dict[object, str]


class Trial:
    """Checks the nodes of graphs; equal calls are converted once."""

    def __init__(self) -> None:
        self._known: Refusals = {}

    def refusal(self, node: torch.fx.Node) -> str:
        """The reason why weft does not support the node; empty if it does."""
        if node.op == "get_attr":
            tensor = attribute_tensor(node)
            return "" if tensor is not None and is_plain(tensor) else "not a plain CPU tensor"
        if node.op != "call_function":
            return f"{node.op} is not an operator"
        if isinstance(node.target, HigherOrderOperator):
            return "no converter"
        if is_check(node) or size_function(node) is not None:
            return self._refused_item(node)
        if is_size_query(node):
            return ""
        if converter_of(node) is None:
            return "no converter"
        key = _key(node)
        if key not in self._known:
            self._known[key] = _tried(node)
        return self._known[key]

    def _refused_item(self, node: torch.fx.Node) -> str:
        """An item of a result is supported if its call is; functions of sizes always are."""
        if node.target is operator.getitem:
            source = node.args[0]
            return self.refusal(source) if isinstance(source, torch.fx.Node) else ""
        return ""


def is_plain(value: Any) -> bool:
    """Whether weft supports the tensor: strided, on the CPU, of a known dtype and class."""
    return (isinstance(value, torch.Tensor) and value.device.type == "cpu"
            and value.layout is torch.strided and has_dtype(value.dtype)
            and not value.is_quantized and not torch._is_functional_tensor(value)  # noqa: SLF001
            and is_known_class(value))


def is_known_class(value: torch.Tensor) -> bool:
    """Whether the tensor's class does not override operators, as other subclasses may."""
    return type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, FakeTensor)


def hint(size: Any) -> int | None:
    """The value of a traced size in the example; ``None`` if it is data-dependent."""
    if isinstance(size, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return size.node.hint
    return size


def _key(node: torch.fx.Node) -> tuple[object, ...]:
    used = tuple(sorted(u.args[1] for u in node.users if u.target is operator.getitem))
    return str(node.target), _text(bound_arguments(node)), used


def _text(argument: Any) -> str:
    """The properties of an argument that a converter can see, as text."""
    if isinstance(argument, torch.fx.Node):
        return _text(argument.meta.get("val"))
    if isinstance(argument, torch.Tensor):
        sizes = [hint(s) for s in argument.shape]
        return f"{type(argument).__name__} {argument.dtype} {argument.device} {sizes}"
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(map(_text, argument))}]"
    number = isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool))
    return f"{type(argument).__name__} {hint(argument) if number else argument!r}"


def _tried(node: torch.fx.Node) -> str:
    converter = converter_of(node)
    raw = bound_arguments(node)
    result = node.meta.get("val")
    try:
        values = [_value(argument) for argument in raw]
        traced = tuple(a.meta.get("val") if isinstance(a, torch.fx.Node) else a for a in raw)
        seen = Node(target_name(node), span_of(node), traced, result)
        made = converter(seen, *values)  # type: ignore[misc]
        return _difference(made, result, node)
    except WeftError as error:
        return error.what
    except Exception as error:  # noqa: BLE001 - a converter that fails must not end the program
        return str(error).splitlines()[0] if str(error) else type(error).__name__


def _value(argument: Any) -> Any:
    if isinstance(argument, torch.fx.Node):
        if "val" not in argument.meta:
            raise ValueError(f"{argument.name} was not traced")
        return _value(argument.meta["val"])
    if isinstance(argument, torch.Tensor):
        if not is_plain(argument):
            raise TypeError(f"a tensor of {argument.dtype} on {argument.device}, "
                            f"{argument.layout}, {type(argument).__name__}")
        type_ = TensorType(_sizes(argument), dtype_of(argument.dtype, "an argument"))
        return Var("x", type_).with_type(type_)
    if isinstance(argument, (list, tuple)):
        return [_value(a) for a in argument]
    if isinstance(argument, (torch.SymInt, torch.SymFloat, torch.SymBool)) \
            and hint(argument) is None:
        raise ValueError("data-dependent size")
    return hint(argument)


def _sizes(tensor: torch.Tensor) -> tuple[int, ...]:
    sizes = tuple(hint(size) for size in tensor.shape)
    if any(size is None for size in sizes):
        raise ValueError("data-dependent size")
    return sizes  # type: ignore[return-value]


def _difference(made: Any, result: Any, node: torch.fx.Node) -> str:
    """How the converter's result differs from the traced result; empty if it does not."""
    if not isinstance(result, (tuple, list)):
        return _difference_of_one(made, result)
    used = [u.args[1] for u in node.users if u.target is operator.getitem]
    numbers: Sequence[Any] = used if len(used) == len(node.users) else range(len(result))
    for number in numbers:
        if not isinstance(made, (tuple, list)) or number >= len(made) or made[number] is None:
            return f"result {number} is not computed"
        wrong = _difference_of_one(made[number], result[number])
        if wrong:
            return f"result {number}: {wrong}"
    return ""


def _difference_of_one(made: Any, result: Any) -> str:
    if not isinstance(result, torch.Tensor):
        return "" if not isinstance(made, Expr) else "the result is not a tensor"
    if not is_plain(result):
        return f"a result of {result.dtype} on {result.device}"
    if not isinstance(made, Expr):
        return "the result is a tensor"
    wanted = TensorType(_sizes(result), dtype_of(result.dtype, "the result"))
    return "" if made.checked_type == wanted else f"{made.checked_type}, expected {wanted}"
