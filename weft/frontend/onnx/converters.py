"""Import of all converter modules, which register their converters in ``registry``."""

from __future__ import annotations

from weft.frontend.onnx.contrib import activations as contrib_activations
from weft.frontend.onnx.contrib import group_query as contrib_group_query
from weft.frontend.onnx.contrib import matmuls as contrib_matmuls
from weft.frontend.onnx.contrib import multi_head as contrib_multi_head
from weft.frontend.onnx.contrib import n_bits as contrib_n_bits
from weft.frontend.onnx.contrib import norms as contrib_norms
from weft.frontend.onnx.contrib import rotary as contrib_rotary
from weft.frontend.onnx.ops import activation as ops_activation
from weft.frontend.onnx.ops import cast as ops_cast
from weft.frontend.onnx.ops import classic as ops_classic
from weft.frontend.onnx.ops import constant as ops_constant
from weft.frontend.onnx.ops import control as ops_control
from weft.frontend.onnx.ops import conv as ops_conv
from weft.frontend.onnx.ops import conv_volume as ops_conv_volume
from weft.frontend.onnx.ops import determinant as ops_determinant
from weft.frontend.onnx.ops import einsum as ops_einsum
from weft.frontend.onnx.ops import elementwise as ops_elementwise
from weft.frontend.onnx.ops import fold as ops_fold
from weft.frontend.onnx.ops import gather as ops_gather
from weft.frontend.onnx.ops import gradient as ops_gradient
from weft.frontend.onnx.ops import grid as ops_grid
from weft.frontend.onnx.ops import index as ops_index
from weft.frontend.onnx.ops import integer as ops_integer
from weft.frontend.onnx.ops import linear as ops_linear
from weft.frontend.onnx.ops import norm as ops_norm
from weft.frontend.onnx.ops import order as ops_order
from weft.frontend.onnx.ops import pool as ops_pool
from weft.frontend.onnx.ops import qlinear as ops_qlinear
from weft.frontend.onnx.ops import quantize as ops_quantize
from weft.frontend.onnx.ops import random as ops_random
from weft.frontend.onnx.ops import recurrent as ops_recurrent
from weft.frontend.onnx.ops import reduce as ops_reduce
from weft.frontend.onnx.ops import reduce_derived as ops_reduce_derived
from weft.frontend.onnx.ops import resize as ops_resize
from weft.frontend.onnx.ops import scan as ops_scan
from weft.frontend.onnx.ops import search as ops_search
from weft.frontend.onnx.ops import sequence as ops_sequence
from weft.frontend.onnx.ops import shape as ops_shape
from weft.frontend.onnx.ops import space as ops_space
from weft.frontend.onnx.ops import spectrum as ops_spectrum
from weft.frontend.onnx.ops import text_counts as ops_text_counts
from weft.frontend.onnx.ops import training as ops_training
from weft.frontend.onnx.ops import unpool as ops_unpool
from weft.frontend.onnx.ops import vision as ops_vision

__all__ = [
    "contrib_activations",
    "contrib_group_query",
    "contrib_matmuls",
    "contrib_multi_head",
    "contrib_n_bits",
    "contrib_norms",
    "contrib_rotary",
    "ops_activation",
    "ops_cast",
    "ops_classic",
    "ops_constant",
    "ops_control",
    "ops_conv",
    "ops_conv_volume",
    "ops_determinant",
    "ops_einsum",
    "ops_elementwise",
    "ops_fold",
    "ops_gather",
    "ops_gradient",
    "ops_grid",
    "ops_index",
    "ops_integer",
    "ops_linear",
    "ops_norm",
    "ops_order",
    "ops_pool",
    "ops_qlinear",
    "ops_quantize",
    "ops_random",
    "ops_recurrent",
    "ops_reduce",
    "ops_reduce_derived",
    "ops_resize",
    "ops_scan",
    "ops_search",
    "ops_sequence",
    "ops_shape",
    "ops_space",
    "ops_spectrum",
    "ops_text_counts",
    "ops_training",
    "ops_unpool",
    "ops_vision",
]
