"""The parts of arrays and the program of one device of a mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir import Call, Constant, Expr, Function, IRModule, Var, infer_expr, post_order
from weft.ir.sharding import Mesh, Sharding
from weft.ir.visitor import children, replace_children
from weft.transform.sharding.costs import collective_name
from weft.transform.sharding.pad_axes import padded_array
from weft.transform.sharding.partition import Partitioned
from weft.transform.sharding.unroll import on_device


def part_of(array: np.ndarray, sharding: Sharding, mesh: Mesh, device: int) -> np.ndarray:
    """The part of a whole array that a device holds."""
    index = []
    for length, axes in zip(sharding.local_shape(array.shape, mesh), sharding.dims, strict=True):
        start = mesh.index(device, axes) * length
        index.append(slice(start, start + length))
    return np.ascontiguousarray(array[tuple(index)]).reshape(
        sharding.local_shape(array.shape, mesh))


def padded(array: np.ndarray, sharding: Sharding, mesh: Mesh) -> np.ndarray:
    """An array whose last elements are repeated until the mesh divides its sizes."""
    for d, size in enumerate(sharding.padded_shape(array.shape, mesh)):
        array = padded_array(array, d, size)
    return array


def joined(parts: Sequence[np.ndarray], sharding: Sharding, mesh: Mesh) -> np.ndarray:
    """The whole array of the parts of all devices."""
    first = parts[0]
    shape = [n * mesh.parts(axes) for n, axes in zip(first.shape, sharding.dims, strict=True)]
    whole = np.empty(shape, first.dtype)
    for device, part in enumerate(parts):
        index = tuple(slice(start := mesh.index(device, axes) * n, start + n)
                      for n, axes in zip(part.shape, sharding.dims, strict=True))
        whole[index] = part
    return whole


def program_of(part: Partitioned, device: int) -> IRModule:
    """The program with a device's weights as constants, and its parts of what all hold."""
    count = len(part.parameters)
    weights: dict[Expr, Expr] = {}
    for param, weight, sharding in zip(part.function.params[count:], part.weights,
                                       part.weight_shardings, strict=True):
        weights[param] = Constant(part_of(weight, sharding, part.mesh, device))
    return IRModule({
        "main": _of_device(part.function, part.function.params[:count], weights, part.mesh, device),
        **{name: _of_device(fn, fn.params, {}, part.mesh, device)
           for name, fn in part.functions.items()}})


def _of_device(fn: Function, params: tuple[Var, ...], weights: Mapping[Expr, Expr], mesh: Mesh,
               device: int) -> Function:
    made: dict[Expr, Expr] = {**{p: p for p in params}, **weights}
    for node in post_order(fn.body):
        if node not in made:
            new = replace_children(node, [made[c] for c in children(node)])
            if isinstance(new, Call) and collective_name(node) == "local_part":
                attrs: Any = new.attrs
                new = infer_expr(on_device(new, [new.args[0]] * attrs.size,
                                           mesh.index(device, attrs.axes)), trust=True)
            made[node] = new
    return fn.replace(params=params, body=made[fn.body])
