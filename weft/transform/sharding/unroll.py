"""All devices of a mesh in one program: a copy of the local program for each, joined by copies.

The whole tensors come in and go out; each device takes its parts, and a collective reads the
operands of its group. Sums are added in the order of the devices, so results have the same bits in
every run. With ``devices`` the copies are placed, on simulated devices or real ones; without, they
run on one, which is how tests compare a sharded program with the whole one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from weft import op
from weft.ir import Call, Constant, Expr, Function, Op, TensorType, Tuple, const, infer_expr
from weft.ir.sharding import Mesh, Sharding
from weft.ir.visitor import children, post_order, rebuild
from weft.op.collective import (
    COMBINED_BY,
    AllReduceAttrs,
    AllToAllAttrs,
    AlongAttrs,
    PermuteAttrs,
)
from weft.transform.sharding.index_maps import tree_of
from weft.transform.sharding.partition import Partitioned

Each = list[Expr]


def unrolled(part: Partitioned, devices: Sequence[str] = ()) -> Function:
    """The whole function, computed by the copies of the local program."""
    return _Unrolling(part, devices).run()


class _Unrolling:
    def __init__(self, part: Partitioned, devices: Sequence[str]) -> None:
        self._part = part
        self._mesh = part.mesh
        self._devices = devices
        self._values: dict[Expr, Each] = {}

    def run(self) -> Function:
        part, mesh = self._part, self._mesh
        given = [*part.whole.params, *(Constant(w) for w in part.weights)]
        for local, value, sharding in zip(part.function.params, given,
                                          (*part.parameters, *part.weight_shardings), strict=True):
            self._values[local] = [self._on(_part_of(value, sharding, mesh, d), d)
                                   for d in range(mesh.size)]
        for node in post_order(part.function.body):
            if node not in self._values:
                self._values[node] = [self._copy(node, d) for d in range(mesh.size)]
        results = [_fields(x) for x in self._values[part.function.body]]
        joined = [_join([self._home(r[n]) for r in results], sharding, mesh)
                  for n, sharding in enumerate(part.results)]
        body = tree_of(part.whole.body.checked_type, iter(joined))
        made = infer_expr(Function(part.whole.params, body), trust=True)
        assert isinstance(made, Function)
        return made

    def _copy(self, node: Expr, device: int) -> Expr:
        """The node on one device."""
        if isinstance(node, Constant):  # of its own: a shared one would join the devices' regions
            return Constant(node.data, span=node.span) if self._devices else node
        if isinstance(node, Op):
            return node
        rule = node.op.hook("on_devices") if isinstance(node, Call) and isinstance(node.op, Op) \
            else None
        if rule is not None:
            assert isinstance(node, Call)
            attrs: Any = node.attrs
            each = self._values[node.args[0]]
            group = [x if d == device else self._on(x, device)
                     for d in self._mesh.group(device, attrs.axes) for x in [each[d]]]
            return rule(attrs, group, self._mesh.index(device, attrs.axes))
        return rebuild(node, [self._values[c][device] for c in children(node)])

    def _on(self, x: Expr, device: int) -> Expr:
        return _placed(x, self._devices[device]) if self._devices else x

    def _home(self, x: Expr) -> Expr:
        return _placed(x, "cpu") if self._devices else x


def _placed(x: Expr, device: str) -> Expr:
    return op.annotation.on_device(x, device=device, constrain_body=False, constrain_result=True)


# Collectives: (attributes, the operands of the group, the place of the device in it) -> its result.


def all_reduce(attrs: AllReduceAttrs, group: Each, _: int) -> Expr:
    return functools.reduce(COMBINED_BY[attrs.reduction], group)


def all_gather(attrs: AlongAttrs, group: Each, _: int) -> Expr:
    return op.concatenate(Tuple(tuple(group)), axis=attrs.dim)


def local_part(attrs: AlongAttrs, group: Each, place: int) -> Expr:
    return _cut(group[place], attrs.dim, attrs.size, place)


def reduce_scatter(attrs: AlongAttrs, group: Each, place: int) -> Expr:
    return functools.reduce(op.add, [_cut(x, attrs.dim, attrs.size, place) for x in group])


def all_to_all(attrs: AllToAllAttrs, group: Each, place: int) -> Expr:
    parts = [_cut(x, attrs.split, attrs.size, place) for x in group]
    return op.concatenate(Tuple(tuple(parts)), axis=attrs.join)


def permute(attrs: PermuteAttrs, group: Each, place: int) -> Expr:
    source = place - attrs.shift
    if not attrs.wraps and not 0 <= source < attrs.size:
        return op.zeros_like(group[place])
    return group[source % attrs.size]


def broadcast(_: Any, group: Each, __: int) -> Expr:
    return group[0]


def _cut(x: Expr, dim: int, parts: int, number: int) -> Expr:
    """Part ``number`` of ``parts`` along a dimension."""
    type_ = infer_expr(x, trust=True).checked_type
    assert isinstance(type_, TensorType)
    length = type_.concrete_shape[dim] // parts
    if isinstance(x, Constant):
        index = [slice(None)] * type_.ndim
        index[dim] = slice(number * length, (number + 1) * length)
        return const(x.data[tuple(index)], type_.dtype)
    return infer_expr(op.strided_slice(x, begin=(number * length,), end=((number + 1) * length,),
                                       strides=(1,), axes=(dim,)), trust=True)


def _part_of(x: Expr, sharding: Sharding, mesh: Mesh, device: int) -> Expr:
    for dim, axes in enumerate(sharding.dims):
        if axes:
            x = _cut(x, dim, mesh.parts(axes), mesh.index(device, axes))
    return x


def _fields(x: Expr) -> list[Expr]:
    """The tensors of a result."""
    if isinstance(x, Tuple):
        return [t for f in x.fields for t in _fields(f)]
    return [x]


def _join(each: Each, sharding: Sharding, mesh: Mesh) -> Expr:
    """The whole tensor, from its parts on all devices."""
    axes = tuple(sharding.axes())
    parts = [each[d] for d in mesh.group(0, axes)]
    for dim in reversed(range(len(sharding.dims))):
        count = mesh.parts(sharding.dims[dim])
        if count > 1:
            parts = [op.concatenate(Tuple(tuple(parts[i:i + count])), axis=dim)
                     for i in range(0, len(parts), count)]
    return parts[0]

