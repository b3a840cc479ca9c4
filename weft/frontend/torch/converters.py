"""All converters of ATen operators; importing this fills the table in ``registry``."""

from __future__ import annotations

from weft.frontend.torch import (
    aten_activation,
    aten_attention,
    aten_batch_norm,
    aten_conv,
    aten_create,
    aten_distance,
    aten_elementwise,
    aten_embedding_bag,
    aten_grid,
    aten_index,
    aten_linear,
    aten_norm,
    aten_order,
    aten_pool,
    aten_recurrent,
    aten_reduce,
    aten_resize,
    aten_shape,
    aten_transformer,
)

__all__ = [
    "aten_activation",
    "aten_attention",
    "aten_batch_norm",
    "aten_conv",
    "aten_create",
    "aten_distance",
    "aten_elementwise",
    "aten_embedding_bag",
    "aten_grid",
    "aten_index",
    "aten_linear",
    "aten_norm",
    "aten_order",
    "aten_pool",
    "aten_recurrent",
    "aten_reduce",
    "aten_resize",
    "aten_shape",
    "aten_transformer",
]
