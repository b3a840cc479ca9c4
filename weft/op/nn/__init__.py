"""Neural network operators: ``op.nn.conv2d``, ``op.nn.relu``, …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.op.elementwise import leaky_relu, relu
    from weft.op.nn.adaptive_pool import (
        AdaptivePool1DAttrs,
        AdaptivePool2DAttrs,
        AdaptivePool3DAttrs,
        adaptive_avg_pool1d,
        adaptive_avg_pool2d,
        adaptive_avg_pool3d,
        adaptive_max_pool1d,
        adaptive_max_pool2d,
        adaptive_max_pool3d,
    )
    from weft.op.nn.attention import AttentionAttrs, attention, masked_attention
    from weft.op.nn.attention_backward import attention_backward, masked_attention_backward
    from weft.op.nn.batch_norm_training import BatchNormTrainingAttrs, batch_norm_training
    from weft.op.nn.bitserial import (
        BinaryConv2DAttrs,
        BitPackAttrs,
        BitserialDenseAttrs,
        bitpack,
        bitserial_conv2d,
        bitserial_dense,
    )
    from weft.op.nn.cache import CacheUpdateAttrs, cache_update, paged_cache_update
    from weft.op.nn.cached_attention import CachedAttentionAttrs, attend_cache, cached_attention
    from weft.op.nn.conv1d import Conv1DAttrs, conv1d
    from weft.op.nn.conv2d import Conv2DAttrs, conv2d
    from weft.op.nn.conv2d_backward_weight import (
        Conv2DBackwardWeightAttrs,
        conv2d_backward_weight,
    )
    from weft.op.nn.conv3d import Conv3DAttrs, conv3d
    from weft.op.nn.conv_transpose import (
        Conv1DTransposeAttrs,
        Conv2DTransposeAttrs,
        Conv3DTransposeAttrs,
        conv1d_transpose,
        conv2d_transpose,
        conv3d_transpose,
    )
    from weft.op.nn.correlation import CorrelationAttrs, correlation
    from weft.op.nn.deformable_conv2d import DeformableConv2DAttrs, deformable_conv2d
    from weft.op.nn.dense import BiasAddAttrs, DenseAttrs, bias_add, dense
    from weft.op.nn.dilate import DilateAttrs, MirrorPadAttrs, dilate, mirror_pad
    from weft.op.nn.fifo_buffer import FifoBufferAttrs, fifo_buffer
    from weft.op.nn.global_pool import (
        GlobalPool1DAttrs,
        GlobalPool2DAttrs,
        GlobalPool3DAttrs,
        global_avg_pool1d,
        global_avg_pool2d,
        global_avg_pool3d,
        global_max_pool1d,
        global_max_pool2d,
        global_max_pool3d,
    )
    from weft.op.nn.group_norm import (
        GroupNormAttrs,
        InstanceNormAttrs,
        group_norm,
        instance_norm,
    )
    from weft.op.nn.grouped_matmul import GroupedMatmulAttrs, grouped_matmul
    from weft.op.nn.loss import NllLossAttrs, cross_entropy, cross_entropy_with_logits, nll_loss
    from weft.op.nn.matmul import BatchMatmulAttrs, MatmulAttrs, batch_matmul, matmul
    from weft.op.nn.norm import (
        BatchNormAttrs,
        DropoutAttrs,
        LayerNormAttrs,
        LrnAttrs,
        batch_norm,
        dropout,
        layer_norm,
        lrn,
    )
    from weft.op.nn.pad import PadAttrs, pad
    from weft.op.nn.pool1d import AvgPool1DAttrs, MaxPool1DAttrs, avg_pool1d, max_pool1d
    from weft.op.nn.pool2d import AvgPool2DAttrs, MaxPool2DAttrs, avg_pool2d, max_pool2d
    from weft.op.nn.pool3d import AvgPool3DAttrs, MaxPool3DAttrs, avg_pool3d, max_pool3d
    from weft.op.nn.pool_grad import avg_pool2d_grad, max_pool2d_grad
    from weft.op.nn.pool_indices import (
        adaptive_max_pool1d_indices,
        adaptive_max_pool2d_indices,
        adaptive_max_pool3d_indices,
        max_pool1d_indices,
        max_pool1d_indices_grad,
        max_pool2d_indices,
        max_pool2d_indices_grad,
        max_pool3d_indices,
        max_pool3d_indices_grad,
    )
    from weft.op.nn.prelu import PReluAttrs, prelu
    from weft.op.nn.rms_norm import L2NormalizeAttrs, RmsNormAttrs, l2_normalize, rms_norm
    from weft.op.nn.rotary import (
        RotaryEmbeddingAttrs,
        rotary_embedding,
        rotary_from_frequencies,
    )
    from weft.op.nn.softmax import SoftmaxAttrs, fast_softmax, log_softmax, softmax
    from weft.op.nn.space_to_batch import (
        BatchToSpaceNDAttrs,
        SpaceToBatchNDAttrs,
        batch_to_space_nd,
        space_to_batch_nd,
    )
    from weft.op.nn.space_to_depth import (
        DepthToSpaceAttrs,
        SpaceToDepthAttrs,
        depth_to_space,
        space_to_depth,
    )
    from weft.op.nn.sparse import (
        SparseDenseAttrs,
        sparse_add,
        sparse_dense,
        sparse_transpose,
    )
    from weft.op.nn.sparse_conv2d import SparseConv2DAttrs, sparse_conv2d
    from weft.op.nn.upsampling import UpSampling3DAttrs, UpSamplingAttrs, upsampling, upsampling3d
    from weft.op.nn.winograd import (
        WinogradConv2DAttrs,
        WinogradWeightAttrs,
        winograd_conv2d,
        winograd_weight,
    )
    from weft.op.transform.shape import batch_flatten
else:
    load_names_lazily(__name__, NAMES[__name__])

__all__ = [
    "AdaptivePool1DAttrs",
    "AdaptivePool2DAttrs",
    "AdaptivePool3DAttrs",
    "AttentionAttrs",
    "AvgPool1DAttrs",
    "AvgPool2DAttrs",
    "AvgPool3DAttrs",
    "BatchMatmulAttrs",
    "BatchNormAttrs",
    "BatchNormTrainingAttrs",
    "BatchToSpaceNDAttrs",
    "BiasAddAttrs",
    "BinaryConv2DAttrs",
    "BitPackAttrs",
    "BitserialDenseAttrs",
    "CacheUpdateAttrs",
    "CachedAttentionAttrs",
    "Conv1DAttrs",
    "Conv1DTransposeAttrs",
    "Conv2DAttrs",
    "Conv2DBackwardWeightAttrs",
    "Conv2DTransposeAttrs",
    "Conv3DAttrs",
    "Conv3DTransposeAttrs",
    "CorrelationAttrs",
    "DeformableConv2DAttrs",
    "DenseAttrs",
    "DepthToSpaceAttrs",
    "DilateAttrs",
    "DropoutAttrs",
    "FifoBufferAttrs",
    "GlobalPool1DAttrs",
    "GlobalPool2DAttrs",
    "GlobalPool3DAttrs",
    "GroupNormAttrs",
    "GroupedMatmulAttrs",
    "InstanceNormAttrs",
    "L2NormalizeAttrs",
    "LayerNormAttrs",
    "LrnAttrs",
    "MatmulAttrs",
    "MaxPool1DAttrs",
    "MaxPool2DAttrs",
    "MaxPool3DAttrs",
    "MirrorPadAttrs",
    "NllLossAttrs",
    "PReluAttrs",
    "PadAttrs",
    "RmsNormAttrs",
    "RotaryEmbeddingAttrs",
    "SoftmaxAttrs",
    "SpaceToBatchNDAttrs",
    "SpaceToDepthAttrs",
    "SparseConv2DAttrs",
    "SparseDenseAttrs",
    "UpSampling3DAttrs",
    "UpSamplingAttrs",
    "WinogradConv2DAttrs",
    "WinogradWeightAttrs",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool1d_indices",
    "adaptive_max_pool2d",
    "adaptive_max_pool2d_indices",
    "adaptive_max_pool3d",
    "adaptive_max_pool3d_indices",
    "attend_cache",
    "attention",
    "attention_backward",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool2d_grad",
    "avg_pool3d",
    "batch_flatten",
    "batch_matmul",
    "batch_norm",
    "batch_norm_training",
    "batch_to_space_nd",
    "bias_add",
    "bitpack",
    "bitserial_conv2d",
    "bitserial_dense",
    "cache_update",
    "cached_attention",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_backward_weight",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "correlation",
    "cross_entropy",
    "cross_entropy_with_logits",
    "deformable_conv2d",
    "dense",
    "depth_to_space",
    "dilate",
    "dropout",
    "fast_softmax",
    "fifo_buffer",
    "global_avg_pool1d",
    "global_avg_pool2d",
    "global_avg_pool3d",
    "global_max_pool1d",
    "global_max_pool2d",
    "global_max_pool3d",
    "group_norm",
    "grouped_matmul",
    "instance_norm",
    "l2_normalize",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "lrn",
    "masked_attention",
    "masked_attention_backward",
    "matmul",
    "max_pool1d",
    "max_pool1d_indices",
    "max_pool1d_indices_grad",
    "max_pool2d",
    "max_pool2d_grad",
    "max_pool2d_indices",
    "max_pool2d_indices_grad",
    "max_pool3d",
    "max_pool3d_indices",
    "max_pool3d_indices_grad",
    "mirror_pad",
    "nll_loss",
    "pad",
    "paged_cache_update",
    "prelu",
    "relu",
    "rms_norm",
    "rotary_embedding",
    "rotary_from_frequencies",
    "softmax",
    "space_to_batch_nd",
    "space_to_depth",
    "sparse_add",
    "sparse_conv2d",
    "sparse_dense",
    "sparse_transpose",
    "upsampling",
    "upsampling3d",
    "winograd_conv2d",
    "winograd_weight",
]
