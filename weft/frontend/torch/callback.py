"""Operators of ``torch.library`` without a converter: compiled code calls them back in torch.

The shapes of the results come from the operator's fake implementation. An operator that writes to
its arguments arrives as ``auto_functionalized``, which writes to copies and returns these.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.fx
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from weft.frontend.common.typed import inferred, tensor_type
from weft.frontend.torch.dtypes import array_of, has_dtype
from weft.frontend.torch.node import Node
from weft.frontend.torch.registry import find_converter
from weft.ir import Call, DType, Expr, TensorType, TupleType, is_static
from weft.support.errors import UnsupportedModelError
from weft.support.fallback import Fallback, report
from weft.transform.external.codegen import PythonCode
from weft.transform.external.generate_external import external_operator

# Libraries whose operators need a converter: torch has thousands, and all of them would run.
_OF_TORCH = ("aten", "prims", "prim")
_WRITING = ("auto_functionalized", "auto_functionalized_v2")
_PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout,
          torch.memory_format, torch.SymInt)


def called_operator(node: torch.fx.Node) -> OpOverload | None:
    """The operator of a node that compiled code can call in torch; ``None`` for other nodes."""
    target: Any = node.target
    if isinstance(target, HigherOrderOperator) and target.name() in _WRITING:
        target = node.args[0]
    if not isinstance(target, OpOverload) or target.namespace in _OF_TORCH \
            or find_converter(str(target)) is not None:
        return None
    values = [_traced(leaf) for leaf in _leaves((node.args, node.kwargs)) if leaf is not target]
    results = [leaf for leaf in _leaves(node.meta.get("val")) if leaf is not None]
    are_tensors = bool(results) and all(isinstance(leaf, torch.Tensor) for leaf in results)
    return target if are_tensors and all(map(_is_known, (*values, *results))) else None


def _leaves(value: Any) -> list[Any]:
    return pytree.tree_leaves(value)


def _traced(leaf: Any) -> Any:
    return leaf.meta.get("val") if isinstance(leaf, torch.fx.Node) else leaf


def _is_known(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return has_dtype(value.dtype) and value.layout is torch.strided
    return isinstance(value, _PLAIN)


def called(node: torch.fx.Node, seen: Node, value: Callable[[Any], Any]) -> Any:
    """The call of the operator of ``node``; ``value`` gives what the importer has for a node."""
    leaves, structure = pytree.tree_flatten((node.args, node.kwargs))
    values = [value(leaf) for leaf in leaves]
    # Each tensor once: a kernel gets equal arguments once.
    tensors = list({id(one): one for one in values if isinstance(one, Expr)}.values())
    places = {i: next(j for j, tensor in enumerate(tensors) if tensor is one)
              for i, one in enumerate(values) if isinstance(one, Expr)}
    types = list(map(tensor_type, tensors))
    if not all(map(is_static, types)) or not all(
            isinstance(one, (*_PLAIN, OpOverload)) for one in values if not isinstance(one, Expr)):
        raise seen.unsupported("functions of Python need fixed sizes",
                               got=", ".join(map(str, types)), help=_cure(seen.op))

    def run(*given: torch.Tensor) -> Any:
        filled = [given[places[i]] if i in places else one for i, one in enumerate(values)]
        args, kwargs = pytree.tree_unflatten(filled, structure)
        return node.target(*args, **kwargs)

    dtypes = {j: _traced(leaves[i]).dtype for i, j in places.items()}
    made = _results(run, dtypes, types, seen)
    outputs = [TensorType(tuple(map(int, t.shape)), seen.dtype_named(t.dtype))
               for t in _leaves(made) if isinstance(t, torch.Tensor)]
    bridge = _bridge(run)
    operator = external_operator(
        f"{seen.op}_{_digest(values, places)}", {f"x{i}": type_ for i, type_ in enumerate(types)},
        outputs[0] if len(outputs) == 1 else TupleType(tuple(outputs)), PythonCode(bridge), bridge)
    call = inferred(Call(operator, tuple(tensors), span=seen.span))
    fields = iter([call] if len(outputs) == 1 else
                  [seen.field(call, i) for i in range(len(outputs))])
    return pytree.tree_map(lambda leaf: leaf if leaf is None else next(fields), made,
                           is_leaf=lambda leaf: leaf is None)


def _results(run: Callable[..., Any], dtypes: Mapping[int, torch.dtype],
             types: Sequence[TensorType], seen: Node) -> Any:
    """The results as tensors without data: as traced, or as the operator has them at ``types``."""
    if all(isinstance(size, int) for leaf in _leaves(seen.result) if leaf is not None
           for size in leaf.shape):
        return seen.result
    try:
        with FakeTensorMode(), torch.no_grad():
            return run(*(torch.empty(type_.concrete_shape, dtype=dtypes[i])
                         for i, type_ in enumerate(types)))
    except Exception as error:  # the implementation is the user's
        raise UnsupportedModelError(
            f"{seen.op}: its result has a size that data determines, or its fake implementation "
            "fails", where=seen.span, got=f"{type(error).__name__}: {error}",
            help=_cure(seen.op)) from error


def _digest(values: Sequence[Any], places: Mapping[int, int]) -> str:
    """A text that only equal arguments share, of tensors equal types and places."""
    shown = [f"{places[i]} {tensor_type(one)}" if isinstance(one, Expr) else repr(one)
             for i, one in enumerate(values)]
    return hashlib.sha256("\n".join(shown).encode()).hexdigest()[:8]


def _bridge(run: Callable[..., Any]) -> Callable[..., Any]:
    """``run`` on NumPy arrays."""
    def bridge(*arrays: np.ndarray) -> np.ndarray | tuple[np.ndarray, ...]:
        with torch.no_grad():
            made = run(*map(_tensor_of, arrays))
        found = tuple(array_of(t.contiguous()) for t in _leaves(made) if t is not None)
        return found[0] if len(found) == 1 else found

    return bridge


def _tensor_of(array: np.ndarray) -> torch.Tensor:
    """A copy, which the operator may keep and write to."""
    if array.dtype == DType.parse("bfloat16").numpy:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def report_calls(nodes: Iterable[torch.fx.Node]) -> None:
    """Report, once for a graph, the operators that compiled code calls in torch."""
    counts = Counter(str(found) for node in nodes if (found := called_operator(node)) is not None)
    if not counts:
        return
    names = ", ".join(f"{name} ({count} time{'s' if count > 1 else ''})"
                      for name, count in sorted(counts.items()))
    report(Fallback(
        f"compiled code calls operators back in torch: {names}",
        "weft has no converter for them",
        "a call of Python each, with copies of the arguments; the model cannot be exported or "
        "differentiated, and has a program for each set of input shapes",
        _cure(min(counts))))


def _cure(name: str) -> str:
    library, own, _ = name.split(".", 2)
    return (f'register @weft.torch_converter("{library}::{own}"), as in '
            "docs/tutorials/add_converter.md")
