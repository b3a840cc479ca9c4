"""Store blocks as bytes: the form of a program whose tensors of blocks are uint8, for kernels."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from weft import ir
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import as_function, op_name


def storage_type(type_: ir.TensorType) -> ir.TensorType:
    """The type of a tensor in memory: blocks are bytes along the last axis."""
    dtype = ir.DType.of(type_.dtype)  # annotations may have a name
    if not dtype.is_block:
        return type_
    *rows, blocks = type_.shape
    return ir.TensorType((*rows, blocks * dtype.itemsize), ir.DType.of("uint8"))


def with_stored_blocks(mod: ir.IRModule) -> ir.IRModule:
    """``mod`` with bytes for tensors of blocks, typed; a module without blocks as it is.

    ``nn.block_quantized_dense`` and ``nn.block_dequantize`` get their formats from the types. Rows
    of blocks are taken and joined as rows of bytes. Raises ``UnsupportedModelError`` where the
    last axis, that of the blocks, is indexed.
    """
    if not any(_mentions_blocks(node) for fn in mod.functions.values()
               for node in ir.post_order(fn)):
        return mod
    typed = ir.infer_type(mod)
    functions = {name: _stored(fn) for name, fn in typed.functions.items()}
    return ir.infer_type(dataclasses.replace(typed, functions=functions))


def _mentions_blocks(node: ir.Expr) -> bool:
    if isinstance(node, ir.Constant):
        return node.data.dtype.names is not None
    return isinstance(node, ir.Var) and node.annotation is not None \
        and _stored_type(node.annotation) != node.annotation


def _stored_type(type_: ir.Type) -> ir.Type:
    return ir.rewrite_type(
        type_, lambda part: storage_type(part) if isinstance(part, ir.TensorType) else None)


def _stored(fn: ir.Function) -> ir.Function:
    memo: dict[ir.Expr, ir.Expr] = {}
    for node in ir.post_order(fn):
        rebuilt = ir.rebuild(node, [memo[child] for child in ir.children(node)])
        memo[node] = _visit(node, rebuilt)
    return as_function(memo[fn])


def _visit(original: ir.Expr, node: ir.Expr) -> ir.Expr:
    if isinstance(original, ir.Var):
        kind = original.annotation
        return ir.Var(original.name, None if kind is None else _stored_type(kind),
                      span=original.span)
    if isinstance(node, ir.Constant) and node.data.dtype.names is not None:
        return ir.Constant(bytes_of_blocks(node.data), span=node.span)
    if isinstance(node, ir.Function) and node.ret_type is not None:
        return dataclasses.replace(node, ret_type=_stored_type(node.ret_type), checked_type=None)
    if isinstance(node, ir.GlobalVar):
        return dataclasses.replace(node, checked_type=None)
    if isinstance(node, ir.Call) and isinstance(original, ir.Call):
        types = tuple(map(_stored_type, node.type_args))
        return dataclasses.replace(node, attrs=_attributes(original), type_args=types,
                                   checked_type=None)
    return node


def _attributes(call: ir.Call) -> Any:
    attrs: Any = call.attrs
    kinds = [arg.checked_type for arg in call.args]
    blocks = [kind for kind in kinds if isinstance(kind, ir.TensorType) and kind.dtype.is_block]
    if not blocks:
        return attrs
    from weft.op.nn.block_quantized import BlockDequantizeAttrs, BlockQuantizedDenseAttrs

    if isinstance(attrs, (BlockQuantizedDenseAttrs, BlockDequantizeAttrs)):
        return dataclasses.replace(attrs, format=blocks[-1].dtype.code)
    axis = getattr(attrs, "axis", None)
    if op_name(call) == "take" and (axis is None or axis % blocks[0].ndim == blocks[0].ndim - 1):
        raise UnsupportedModelError("blocks are taken one by one", where=call.span,
                                    expected="an axis before that of the blocks", got=axis,
                                    help="take rows, or dequantise before it")
    return attrs


def bytes_of_blocks(data: np.ndarray) -> np.ndarray:
    """The bytes of an array of blocks, along its last axis; memory is shared where it can be."""
    return np.ascontiguousarray(data).view(np.uint8)
