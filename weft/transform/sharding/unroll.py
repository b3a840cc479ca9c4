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
from weft.ir import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    const,
    infer_expr,
)
from weft.ir.sharding import Mesh, Sharding
from weft.ir.visitor import children, is_call_of, post_order, rebuild
from weft.op.collective import (
    COMBINED_BY,
    AllReduceAttrs,
    AllToAllAttrs,
    AlongAttrs,
    PermuteAttrs,
)
from weft.op.cut_axes import tensor_types
from weft.transform.sharding.index_maps import tree_of
from weft.transform.sharding.loops import conditions_before, path_ends
from weft.transform.sharding.pad_axes import padded_tensor
from weft.transform.sharding.partition import Partitioned

Each = list[Expr]


def unrolled(part: Partitioned, devices: Sequence[str] = ()) -> IRModule:
    """The whole program, computed by the copies of the local one; a loop has the state of all."""
    return IRModule({"main": _Unrolling(part.mesh, devices).main(part), **{
        name: _Unrolling(part.mesh, devices).loop(name, fn)
        for name, fn in part.functions.items()}})


class _Unrolling:
    def __init__(self, mesh: Mesh, devices: Sequence[str]) -> None:
        self._mesh = mesh
        self._devices = devices
        self._values: dict[Expr, Each] = {}

    def main(self, part: Partitioned) -> Function:
        mesh = self._mesh
        given = [*part.whole, *(Constant(w) for w in part.weights)]
        for local, value, sharding in zip(part.function.params, given,
                                          (*part.parameters, *part.weight_shardings), strict=True):
            whole = _padded(value, local, sharding, mesh)
            self._values[local] = [self._on(_part_of(whole, sharding, mesh, d), d)
                                   for d in range(mesh.size)]
        self._visit(part.function.body)
        results = [_fields(x) for x in self._values[part.function.body]]
        joined = [_first(_join([self._home(r[n]) for r in results], sharding, mesh), type_)
                  for n, (sharding, type_) in enumerate(zip(
                      part.results, tensor_types(part.result_type), strict=True))]
        body = tree_of(part.result_type, iter(joined))
        made = infer_expr(Function(part.whole, body), trust=True)
        assert isinstance(made, Function)
        return made

    def loop(self, name: str, fn: Function) -> Function:
        """A function of the local program, of the tensors of all devices."""
        for p in fn.params:
            assert isinstance(p.checked_type, TensorType)
            self._values[p] = [Var(f"{p.name}_{d}", p.checked_type)
                               for d in range(self._mesh.size)]
        ends = path_ends(fn.body, name)
        for end in ends:
            for x in end.args if is_call_of(end, name) else (end,):
                self._visit(x)
        made: dict[Expr, Expr] = {
            end: self._call(end) if is_call_of(end, name) else Tuple(tuple(self._values[end]))
            for end in ends}
        for node in conditions_before(fn.body, name):
            self._visit(node.cond)
            made[node] = If(self._values[node.cond][0], made[node.true_branch],
                            made[node.false_branch], span=node.span)
        params = tuple(v for p in fn.params for v in self._values[p] if isinstance(v, Var))
        return Function(params, made[fn.body], self._of_all(fn.ret_type))

    def _visit(self, body: Expr) -> None:
        for node in post_order(body):
            if node not in self._values:
                self._values[node] = self._each(node)

    def _each(self, node: Expr) -> Each:
        """The node on all devices."""
        match node:
            case If():  # devices take the same branch
                shared: Expr = If(self._values[node.cond][0], *(
                    Tuple(tuple(self._values[b])) for b in (node.true_branch, node.false_branch)),
                    span=node.span)
            case Call() if isinstance(node.op, GlobalVar):
                shared = self._call(node)
            case GlobalVar():
                return []
            case _:
                return [self._copy(node, d) for d in range(self._mesh.size)]
        whole = shared.replace(checked_type=self._of_all(node.checked_type))
        return [infer_expr(TupleGetItem(whole, d), trust=True) for d in range(self._mesh.size)]

    def _call(self, call: Call) -> Call:
        args = tuple(x for a in call.args for x in self._values[a])
        return Call(call.op, args, span=call.span, checked_type=self._of_all(call.checked_type))

    def _of_all(self, type_: Type | None) -> Type:
        assert type_ is not None
        return TupleType((type_,) * self._mesh.size)

    def _copy(self, node: Expr, device: int) -> Expr:
        """The node on one device."""
        if isinstance(node, Constant):  # of its own: a shared one would join the devices' regions
            return Constant(node.data, span=node.span) if self._devices else node
        if isinstance(node, Op):
            return node
        if isinstance(node, Call) and isinstance(node.op, Op) and node.op.hook("on_devices"):
            attrs: Any = node.attrs
            each = self._values[node.args[0]]
            group = [x if d == device else self._on(x, device)
                     for d in self._mesh.group(device, attrs.axes) for x in [each[d]]]
            return on_device(node, group, self._mesh.index(device, attrs.axes))
        return rebuild(node, [self._values[c][device] for c in children(node)])

    def _on(self, x: Expr, device: int) -> Expr:
        return _placed(x, self._devices[device]) if self._devices else x

    def _home(self, x: Expr) -> Expr:
        return _placed(x, "cpu") if self._devices else x


def on_device(call: Call, group: Each, place: int) -> Expr:
    """The result of a collective on the device at ``place`` of its group."""
    assert isinstance(call.op, Op)
    found: Expr = call.op.hook("on_devices")(call.attrs, group, place)
    return found


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
        type_ = infer_expr(group[place], trust=True).checked_type
        assert isinstance(type_, TensorType)
        return op.broadcast_to(const(attrs.fill, type_.dtype), shape=type_.shape)
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


def _padded(x: Expr, local: Var, sharding: Sharding, mesh: Mesh) -> Expr:
    """The whole tensor of the parts, which may be padded."""
    (type_,) = tensor_types(local.checked_type)
    x = infer_expr(x)
    for d, (n, axes) in enumerate(zip(type_.concrete_shape, sharding.dims, strict=True)):
        x = padded_tensor(x, d, n * mesh.parts(axes))
    return x


def _first(x: Expr, type_: TensorType) -> Expr:
    """A tensor without the padding behind it."""
    (whole,) = tensor_types(infer_expr(x, trust=True).checked_type)
    cut = [d for d in range(type_.ndim) if whole.shape[d] != type_.shape[d]]
    if not cut:
        return x
    ends = tuple(type_.concrete_shape[d] for d in cut)
    return op.strided_slice(x, begin=(0,) * len(cut), end=ends, strides=(1,) * len(cut),
                            axes=tuple(cut))


def _part_of(x: Expr, sharding: Sharding, mesh: Mesh, device: int) -> Expr:
    for dim, axes in enumerate(sharding.dims):
        if axes:
            x = _cut(x, dim, mesh.parts(axes), mesh.index(device, axes))
    return x


def _fields(x: Expr) -> list[Expr]:
    """The tensors of a result."""
    if isinstance(x, Tuple):
        return [t for f in x.fields for t in _fields(f)]
    type_ = infer_expr(x, trust=True).checked_type
    if isinstance(type_, TupleType):
        return [t for n in range(len(type_.fields)) for t in _fields(TupleGetItem(x, n))]
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
