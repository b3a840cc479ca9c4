"""Cases that do not run in symbolic form, and sizes that stay numbers in that form.

``test_symbolic.py`` fails for a listed case that works: delete its line then. It also fails for a
case that is neither listed nor works. ``python -m tests.unit.op.symbolic_exceptions [OPERATOR]``
runs all cases and prints both kinds, in the form of the lines below.
"""

from __future__ import annotations

from fnmatch import fnmatch

# Inputs (``kernel``), or axes of inputs (``boxes.2``), whose sizes are a part of the operator.
FIXED: dict[str, tuple[str, ...]] = {
    "random.*": ("key",),
    "image.affine_grid": ("data",),
    "image.crop_and_resize": ("boxes.1",),
    "image.grid_sample": ("grid.1",),
    "nn.block_dequantize": ("data.1",),
    "nn.block_quantized_dense": ("data.1", "data.2", "weight.1"),
    "nn.winograd_weight": ("weight.2",),
    "sparse_to_dense": ("indices.1",),
    "vision.all_class_non_max_suppression": ("boxes.2",),
    "nn.attention_backward": ("dy.1", "k.1"),
    "vision.roi_*_grad": ("rois.1", "grad.2", "grad.3"),
    "vision.roi_*": ("rois.1",),
    "nn.conv?d": ("kernel",),
    "nn.conv?d_transpose": ("kernel",),
    "nn.conv2d_backward_weight": ("grad.1", "data.1"),
    "nn.deformable_conv2d": ("kernel", "offset.1"),
    "nn.winograd_conv2d": ("kernel",),
    "qnn.conv2d*": ("kernel",),
    "nn.group_norm": ("gamma",),
    # The channel block of a layout such as NCHW4c.
    "image.resize2d": ("x.4",),
    "nn.upsampling": ("x.4",),
    **{f"nn.*_pool{axes}d": (f"x.{axes + 2}",) for axes in (1, 2, 3)},
    "gather_nd": ("indices.0",),
    "scatter_nd": ("indices.0",),
    "vision.non_max_suppression": ("data.2",),
    "vision.get_valid_counts": ("data.2",),
    "vision.regular_non_max_suppression": ("boxes.2", "scores.2"),
}

_QNN = "the decompositions of quantised operators are built for fixed types"
_LAYOUT = "a blocked layout needs a multiple of the block"
_VALUES = "the sizes of the operands are not known"

# Refused with a clear error: patterns of ``operator-number``, with the reason.
REFUSED: dict[str, str] = {
    **dict.fromkeys([f"collapse_sum_to-{i}" for i in (0, 2, 3)], "the shape is a number"),
    "dyn.strided_slice-0": "the number of bounds is symbolic",
    **dict.fromkeys(["image.resize1d-1", "image.resize2d-4", "image.resize2d-5"],
                    "antialiasing computes its windows from fixed sizes"),
    **dict.fromkeys([f"layout_transform-{i}" for i in (1, 2, 3)], _LAYOUT),
    "nn.deformable_conv2d-1": "the channels of groups are symbolic",
    **dict.fromkeys(["nn.upsampling-2", "nn.upsampling-4", "nn.upsampling3d-1"],
                    "the size of the result is rounded"),
    "nn.winograd_conv2d-2": _LAYOUT,
    "broadcast_to-[02]": "the size may be 1 or that of the result",
    "sparse_reshape-[012]": _VALUES, "unravel_index-[01]": _VALUES, "stft-[012]": _VALUES,
    "sparse_fill_empty_rows-[01]": _VALUES,
    **dict.fromkeys(["nn.*pool?d_grad-[0-3]", "nn.max_pool?d_indices_grad-*", "nn.sparse_add-0",
                     "nn.conv2d_backward_weight-*", "nn.deformable_conv2d-0", "matrix_set_diag-2",
                     "matrix_set_diag-[34]", "reshape_like-[01]", "vision.proposal-*",
                     "vision.multibox_transform_loc-*", "vision.roi_pool_grad-1", "irdft-*"],
                    "a size is a formula of others, and here a symbol of its own"),
    **dict.fromkeys(["nn.dense-1", "reshape-0", "reshape-3", "reverse_reshape-1"],
                    "an attribute holds the size as a number"),
    **dict.fromkeys(["slice_like-[012]", "scatter_elements-1", "strided_set-[12]"],
                    "one of two symbols may be larger than the other"),
    "strided_set-[03]": "the number of bounds is symbolic",
    "nn.dense-[45]": _LAYOUT,
    "nn.grouped_matmul-3": _LAYOUT,
    "nn.block_quantized_dense-12": "the inner size is that of whole blocks",
    **dict.fromkeys(["nn.conv1d-1", "nn.conv2d-3", "nn.conv2d-5", "nn.conv3d-1",
                     "nn.space_to_batch_nd-[12]"], "the size may not be a multiple of the groups "
                                                   "or blocks"),
    "unravel_index-3": _VALUES,
    **{f"qnn.{name}": _QNN for name in (
        "abs-[023]", "add-*", "avg_pool2d-*", "batch_matmul-*", "concatenate-*", "conv2d-*",
        "conv2d_transpose-0", "dense-*", "dequantize-[0234]", "erf-[023]", "exp-[023]",
        "hardswish-[023]", "leaky_relu-[0234]", "log-[02]", "mul-*", "quantize-[01235678]",
        "quantize-9", "requantize-[0123457]", "rsqrt-[02]", "sigmoid-[023]",
        "simulated_dequantize-[01]", "simulated_quantize-[01]", "softmax-[012]", "sqrt-[02]",
        "subtract-*", "tanh-[023]")},
}

# Wrong or failing without a clear error at some sizes, to be mended: patterns with the reason.
WRONG: dict[str, str] = {}


def fixed_inputs(name: str) -> tuple[str, ...]:
    """What stays a number in the symbolic form of an operator's cases."""
    return next((names for pattern, names in FIXED.items() if fnmatch(name, pattern)), ())


def reason_for(listed: dict[str, str], case: str) -> str | None:
    """The reason why a case is in ``REFUSED`` or ``WRONG``; ``None`` for a case that works."""
    return next((why for pattern, why in listed.items() if fnmatch(case, pattern)), None)
