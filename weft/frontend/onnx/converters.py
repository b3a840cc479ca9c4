"""All converters of ONNX operators; importing this fills the table in ``registry``."""

from __future__ import annotations

from weft.frontend.onnx import (
    ops_activation,
    ops_cast,
    ops_constant,
    ops_conv,
    ops_conv_volume,
    ops_einsum,
    ops_elementwise,
    ops_gather,
    ops_grid,
    ops_index,
    ops_integer,
    ops_linear,
    ops_norm,
    ops_order,
    ops_pool,
    ops_quantize,
    ops_recurrent,
    ops_reduce,
    ops_resize,
    ops_shape,
)

__all__ = [
    "ops_activation",
    "ops_cast",
    "ops_constant",
    "ops_conv",
    "ops_conv_volume",
    "ops_einsum",
    "ops_elementwise",
    "ops_gather",
    "ops_grid",
    "ops_index",
    "ops_integer",
    "ops_linear",
    "ops_norm",
    "ops_order",
    "ops_pool",
    "ops_quantize",
    "ops_recurrent",
    "ops_reduce",
    "ops_resize",
    "ops_shape",
]
