"""``shard_map``: a program that is written for one device of a mesh, with explicit collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from weft.compiler.transformations.parameters import imported
from weft.distributed.plan import ShardingPlan
from weft.frontend.source import ModelLike
from weft.ir import Function, TensorType, TupleType, Type, Var, infer_expr, infer_type, post_order
from weft.ir.sharding import Mesh, Sharding
from weft.op.cut_axes import tensor_types
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean
from weft.transform.passes.extract_subgraph import tensors_and_body
from weft.transform.sharding.costs import collective_name
from weft.transform.sharding.partition import Partitioned


def shard_map(
    model: ModelLike, mesh: Mesh,
    in_shardings: Sequence[Sharding | None] | Mapping[str, Sharding],
    out_shardings: Sequence[Sharding], *,
    inputs: Mapping[str, Sequence[object]] | None = None,
    example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
) -> ShardingPlan:
    """The plan whose program of one device is ``model``, as it stands.

    ``model`` takes and gives parts of tensors, and exchanges data by the operators
    ``collective.*``. ``in_shardings`` and ``out_shardings`` say of which tensors these are the
    parts; an input without one is whole on all devices. A result that is whole must be equal on all
    devices, which is not checked. ``inputs`` and ``example_inputs`` are those of ``weft.compile``,
    of parts.

    Raises ``OptionError`` for shardings that do not fit, and for collectives of other groups than
    the mesh has.
    """
    module = infer_type(imported(model, inputs, example_inputs))
    main = dataclasses.replace(module["main"], body=tensors_and_body(module)[1])
    _check_groups(main, mesh)
    given = _of_inputs(in_shardings, main.params)
    params = tuple(Var(p.name, _whole(p.checked_type, s, mesh))
                   for p, s in zip(main.params, given, strict=True))
    results = tensor_types(main.body.checked_type)
    if len(out_shardings) != len(results):
        raise OptionError("another number of out_shardings than results",
                          expected=f"{len(results)} shardings", got=len(out_shardings))
    wholes = iter([_whole(t, s, mesh) for t, s in zip(results, out_shardings, strict=True)])
    typed = tuple(v for p in params for v in [infer_expr(p)] if isinstance(v, Var))
    return ShardingPlan(module, Partitioned(
        mesh, main, typed, _tree(main.body.checked_type, wholes), given, (), (),
        tuple(out_shardings)))


def _of_inputs(given: Sequence[Sharding | None] | Mapping[str, Sharding], params: Sequence[Var]
               ) -> tuple[Sharding, ...]:
    names = [p.name for p in params]
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                raise OptionError(f"the model has no input {name!r}", expected=", ".join(names),
                                  help=did_you_mean(name, names))
        given = [given.get(name) for name in names]
    if len(given) != len(params):
        raise OptionError("another number of in_shardings than inputs",
                          expected=f"{len(params)} shardings", got=len(given))
    return tuple(s or Sharding.replicated(_ndim(p)) for p, s in zip(params, given, strict=True))


def _ndim(param: Var) -> int:
    if not isinstance(param.checked_type, TensorType):
        raise OptionError("a part is a tensor", where=param.name, got=param.checked_type)
    return param.checked_type.ndim


def _whole(part: Type | None, sharding: Sharding, mesh: Mesh) -> TensorType:
    """The type of the tensor of which a device holds ``part``."""
    if not isinstance(part, TensorType):
        raise OptionError("a part is a tensor", got=part)
    if len(sharding.dims) != part.ndim:
        raise OptionError(f"a sharding of {len(sharding.dims)} dimensions for a part of "
                          f"{part.ndim}", expected=f"{part.ndim} dimensions", got=sharding)
    return TensorType(tuple(size * mesh.parts(axes) for size, axes in
                            zip(part.concrete_shape, sharding.dims, strict=True)), part.dtype)


def _tree(type_: Type | None, wholes: Any) -> Type:
    if isinstance(type_, TupleType):
        return TupleType(tuple(_tree(t, wholes) for t in type_.fields))
    whole: Type = next(wholes)
    return whole


def _check_groups(main: Function, mesh: Mesh) -> None:
    for node in post_order(main.body):
        if collective_name(node) is not None:
            attrs: Any = getattr(node, "attrs", None)
            if mesh.parts(attrs.axes) != attrs.size:
                raise OptionError(
                    f"{node.op.name} names a group of another size",  # type: ignore[attr-defined]
                    where=node.span, expected=f"size={mesh.parts(attrs.axes)} for axes "
                    f"{', '.join(attrs.axes)} of the mesh {mesh}", got=attrs.size)
