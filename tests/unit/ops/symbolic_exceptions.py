"""Cases that do not run in symbolic form, and sizes that stay numbers in that form.

``test_symbolic.py`` fails for a listed case that works: delete its line then. It also fails for a
case that is neither listed nor works. ``python -m tests.unit.ops.symbolic_exceptions [OPERATOR]``
runs all cases and prints both kinds, in the form of the lines below.
"""

from __future__ import annotations

from fnmatch import fnmatch

# Inputs (``kernel``), or axes of inputs (``boxes.2``), whose sizes are a part of the operator.
FIXED: dict[str, tuple[str, ...]] = {
    "random.*": ("key",),
    "nn.conv?d": ("kernel",),
    "nn.conv?d_transpose": ("kernel",),
    "nn.conv2d_backward_weight": ("grad.1", "data.1"),
    "nn.deformable_conv2d": ("kernel", "offset.1"),
    "nn.winograd_conv2d": ("kernel",),
    "qnn.conv2d*": ("kernel",),
    "nn.group_norm": ("gamma",),
    "gather_nd": ("indices.0",),
    "scatter_nd": ("indices.0",),
    "vision.non_max_suppression": ("data.2",),
    "vision.get_valid_counts": ("data.2",),
    "vision.regular_non_max_suppression": ("scores.2",),
}

_QNN = "the decompositions of quantised operators are built for fixed types"
_LAYOUT = "a blocked layout needs a multiple of the block"
_CEIL = "the type relation gives an unknown size"

# Refused with a clear error: patterns of ``operator-number``, with the reason.
REFUSED: dict[str, str] = {
    **dict.fromkeys([f"collapse_sum_to-{i}" for i in (0, 2, 3)], "the shape is a number"),
    "dyn.strided_slice-0": "the number of bounds is symbolic",
    **dict.fromkeys(["image.resize1d-1", "image.resize2d-4", "image.resize2d-5"],
                    "antialiasing computes its windows from fixed sizes"),
    **dict.fromkeys([f"layout_transform-{i}" for i in (0, 2, 4, 5, 6)], _LAYOUT),
    "nn.deformable_conv2d-1": "the channels of groups are symbolic",
    **dict.fromkeys([f"nn.upsampling-{i}" for i in (1, 2, 3, 4)] + ["nn.upsampling3d-1"],
                    "the size of the result is rounded"),
    **dict.fromkeys(["nn.avg_pool1d-1", "nn.avg_pool2d-2", "nn.avg_pool2d-5", "nn.avg_pool2d-8",
                     "nn.max_pool1d-1", "nn.max_pool2d-2", "nn.max_pool2d-5"],
                    _CEIL),
    "nn.conv1d-6": _LAYOUT, "nn.conv2d-9": _LAYOUT,
    "nn.winograd_conv2d-[012]": "a schedule for fixed sizes",
    "broadcast_to-[02]": "the size may be 1 or that of the result",
    "split-0": "the size may not be a multiple of the number of sections",
    **{f"qnn.{name}": _QNN for name in (
        "abs-[023]", "add-*", "avg_pool2d-*", "batch_matmul-*", "concatenate-*", "conv2d-*",
        "conv2d_transpose-0", "dense-*", "dequantize-[0234]", "erf-[023]", "exp-[023]",
        "hardswish-[023]", "leaky_relu-[0234]", "log-[02]", "mul-*", "quantize-[01235678]",
        "quantize-9", "requantize-[0123457]", "rsqrt-[02]", "sigmoid-[023]",
        "simulated_dequantize-[01]", "simulated_quantize-[01]", "softmax-[012]", "sqrt-[02]",
        "subtract-*", "tanh-[023]")},
    **dict.fromkeys([f"unique-{i}" for i in (0, 1, 2, 5)], "the sort is written for a fixed size"),
}

_MIN = "the type relation takes one of two sizes for the smaller one"
_SHAPE_LATER = "the compute takes a symbolic size for 1"

# Wrong or failing without a clear error at some sizes, to be mended: patterns with the reason.
WRONG: dict[str, str] = {
    "image.resize2d-15": "differs beyond the tolerance at other sizes",
    "linalg.lu-[12]": _MIN, "linalg.qr-[12]": _MIN,
    "nn.avg_pool2d-4": "the block of the layout counts as a size",
    "nn.max_pool2d-4": "the block of the layout counts as a size",
    "nn.max_pool2d-3": "an image smaller than the window",
    "nn.conv2d-4": "differs at some sizes",
    "sparse_reshape-[012]": _SHAPE_LATER, "unravel_index-[01]": _SHAPE_LATER,
    "stft-[02]": _SHAPE_LATER, "stft-1": _SHAPE_LATER,
    "sparse_fill_empty_rows-[01]": "the scratch memory is declared for fixed sizes",
    "squeeze-2": "an axis that is 1 at run time counts as larger",
}


def fixed_inputs(name: str) -> tuple[str, ...]:
    """What stays a number in the symbolic form of an operator's cases."""
    return next((names for pattern, names in FIXED.items() if fnmatch(name, pattern)), ())


def reason_for(listed: dict[str, str], case: str) -> str | None:
    """The reason why a case is in ``REFUSED`` or ``WRONG``; ``None`` for a case that works."""
    return next((why for pattern, why in listed.items() if fnmatch(case, pattern)), None)
