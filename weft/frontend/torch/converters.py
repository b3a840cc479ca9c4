"""All converters of ATen operators; importing this module registers them."""

from __future__ import annotations

from weft.frontend.torch.aten import activation as aten_activation
from weft.frontend.torch.aten import attention as aten_attention
from weft.frontend.torch.aten import batch_norm as aten_batch_norm
from weft.frontend.torch.aten import bits as aten_bits
from weft.frontend.torch.aten import conv as aten_conv
from weft.frontend.torch.aten import create as aten_create
from weft.frontend.torch.aten import distance as aten_distance
from weft.frontend.torch.aten import elementwise as aten_elementwise
from weft.frontend.torch.aten import embedding_bag as aten_embedding_bag
from weft.frontend.torch.aten import factor as aten_factor
from weft.frontend.torch.aten import grid as aten_grid
from weft.frontend.torch.aten import index as aten_index
from weft.frontend.torch.aten import linear as aten_linear
from weft.frontend.torch.aten import lu as aten_lu
from weft.frontend.torch.aten import norm as aten_norm
from weft.frontend.torch.aten import order as aten_order
from weft.frontend.torch.aten import pad_backward as aten_pad_backward
from weft.frontend.torch.aten import pairs as aten_pairs
from weft.frontend.torch.aten import pool as aten_pool
from weft.frontend.torch.aten import recurrent as aten_recurrent
from weft.frontend.torch.aten import reduce as aten_reduce
from weft.frontend.torch.aten import resize as aten_resize
from weft.frontend.torch.aten import resize_antialias as aten_resize_antialias
from weft.frontend.torch.aten import scan as aten_scan
from weft.frontend.torch.aten import scatter as aten_scatter
from weft.frontend.torch.aten import search as aten_search
from weft.frontend.torch.aten import select as aten_select
from weft.frontend.torch.aten import shape as aten_shape
from weft.frontend.torch.aten import special as aten_special
from weft.frontend.torch.aten import strided as aten_strided
from weft.frontend.torch.aten import transformer as aten_transformer

__all__ = [
    "aten_activation",
    "aten_attention",
    "aten_batch_norm",
    "aten_bits",
    "aten_conv",
    "aten_create",
    "aten_distance",
    "aten_elementwise",
    "aten_embedding_bag",
    "aten_factor",
    "aten_grid",
    "aten_index",
    "aten_linear",
    "aten_lu",
    "aten_norm",
    "aten_order",
    "aten_pad_backward",
    "aten_pairs",
    "aten_pool",
    "aten_recurrent",
    "aten_reduce",
    "aten_resize",
    "aten_resize_antialias",
    "aten_scan",
    "aten_scatter",
    "aten_search",
    "aten_select",
    "aten_shape",
    "aten_special",
    "aten_strided",
    "aten_transformer",
]
