"""``weft.vmap``: a model of one example as a model of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.compiler.transformations.parameters import imported
from weft.frontend.source import ModelLike
from weft.ir import IRModule, KnownDim, SymDim, TensorType, as_shape, post_order
from weft.ir.size_range import name_of
from weft.support.errors import OptionError
from weft.transform.autodiff.batching.vectorize import Axes, Vectorize


def vmap(
    model: ModelLike,
    in_axes: Axes | Sequence[Axes] | Mapping[str, Axes] = 0,
    out_axes: Axes | Sequence[Axes] = 0,
    axis_size: int | str | SymDim | None = None,
    *,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> IRModule:
    """The module that applies ``model``, a function of one example, to a batch of examples.

    ``model``, ``inputs`` and ``example_inputs`` are those of ``weft.compile``; shapes are those of
    one example. ``in_axes`` is the axis of the batch in each parameter (JAX's ``vmap``): one number
    for all, a sequence with one entry per parameter, or a mapping by name, in which parameters that
    are not named have ``None``. ``None`` means that all examples share the parameter. ``out_axes``
    is the axis of the batch in each result. Axes of tuples may be nested tuples. Negative axes
    count from the end of the batched shape.

    ``axis_size`` is the number of examples, or a symbol such as ``"n{1..64}"``; by default a new
    symbol ``batch``, so that the compiled program takes batches of any size. Operators without a
    batching rule run in a loop over the examples; with a symbol, a model with such a loop is
    compiled for each size that arrives.

    Raises ``PassError`` for axes that do not fit and for programs that ``Vectorize`` refuses,
    ``OptionError`` for an unknown parameter, ``TypeInferenceError`` for an impossible size, and
    what importing the model raises.
    """
    mod = imported(model, inputs, example_inputs)
    names = [p.name for p in mod["main"].params]
    size = _axis_size(axis_size, mod)
    return Vectorize(axis_size=size, in_axes=_in_axes(in_axes, names),
                     out_axes=_nested(out_axes))(mod)


def _in_axes(given: Axes | Sequence[Axes] | Mapping[str, Axes], names: Sequence[str]) -> Axes:
    if isinstance(given, Mapping):
        unknown = [n for n in given if n not in names]
        if unknown:
            raise OptionError(f"in_axes names unknown parameters: {', '.join(unknown)}",
                              expected=", ".join(names) or "no parameters")
        return tuple(_nested(given.get(n)) for n in names)
    return _nested(given)


def _nested(axes: Any) -> Axes:
    """Lists as tuples; ``OptionError`` for anything but axes."""
    if isinstance(axes, (list, tuple)):
        return tuple(map(_nested, axes))
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return axes
    raise OptionError("not an axis", got=repr(axes), expected="an int, None, or a tuple of them")


def _axis_size(given: int | str | SymDim | None, mod: IRModule) -> KnownDim:
    if given is None:
        return SymDim.symbol(_unused("batch", mod))
    (size,) = as_shape((given,))
    if isinstance(size, (SymDim, int)):
        return size
    raise OptionError("axis_size is not a number of examples", got=repr(given),
                      expected="0 or more, or a symbol")


def _unused(name: str, mod: IRModule) -> str:
    """``name``, or if a symbol of the module has it, ``name`` with a number."""
    used: set[str] = set()
    for fn in mod.functions.values():
        for node in post_order(fn):
            if isinstance(node.checked_type, TensorType):
                for dim in node.checked_type.shape:
                    used.update(map(name_of, dim.symbols() if isinstance(dim, SymDim) else ()))
    number, free = 1, name
    while free in used:
        number += 1
        free = f"{name}{number}"
    return free
