"""Resampling and detection."""

from __future__ import annotations

from weft.export.onnx.call import CallWriter
from weft.export.onnx.ops.window import is_whole
from weft.export.onnx.registry import writes
from weft.export.writers import Value
from weft.ir.dtype import float32, int64

_METHODS = {"nearest_neighbor": "nearest"}


@writes("image.resize1d", "image.resize2d", "image.resize3d")
def resize(c: CallWriter) -> Value | None:
    a = c.attrs
    if not is_whole(a.layout) or c.result.dtype != c.dtype:
        return c.no_form(f"layout {a.layout}, or a result of another dtype")
    if a.method == "cubic" and len(a.size) != 2:
        return c.no_form("cubic interpolation of signals and volumes")
    axes = [a.layout.index(letter) for letter in a.spatial]
    has_scales = bool(a.scales)
    scales = c.const(a.scales, float32) if has_scales else ""
    size = "" if has_scales else c.sizes(a.size)
    roi = c.const(a.roi, float32) if a.roi else ""
    return c.emit("Resize", c.inputs[0], roi, scales, size, axes=axes,
                  mode=_METHODS.get(a.method, a.method),
                  coordinate_transformation_mode=a.coordinate_transformation_mode,
                  nearest_mode=a.rounding_method, cubic_coeff_a=a.cubic_alpha,
                  exclude_outside=int(a.cubic_exclude), antialias=int(a.antialias),
                  extrapolation_value=a.extrapolation_value)


@writes("image.grid_sample")
def grid_sample(c: CallWriter) -> Value | None:
    a = c.attrs
    images = c.types[0].ndim - 2
    if a.layout not in ("NCHW", "NCDHW"):
        return c.no_form(f"layout {a.layout}")
    modes = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    if a.padding_mode not in ("zeros", "border", "reflection") or a.method not in modes:
        return c.no_form(f"method {a.method!r} with padding {a.padding_mode!r}")
    grid = c.transposed(c.inputs[1], (0, *range(2, images + 2), 1))
    return c.emit("GridSample", c.inputs[0], grid, mode=modes[a.method],
                  padding_mode=a.padding_mode, align_corners=int(a.align_corners))


@writes("vision.all_class_non_max_suppression")
def non_max_suppression(c: CallWriter) -> Value | None:
    """The boxes of all classes, of which ONNX gives the indices too, without their number."""
    if len(c.results) != 1 or c.result.dtype != int64:
        return c.no_form("the number of boxes as a result")
    most, *thresholds = c.inputs[2:]
    return c.emit("NonMaxSuppression", *c.inputs[:2],
                  c.as_dtype(most, c.types[2].dtype, int64), *thresholds,
                  center_point_box=int(c.attrs.center_point_box))


@writes("vision.roi_align")
def roi_align(c: CallWriter) -> Value | None:
    a = c.attrs
    if a.layout != "NCHW" or a.mode not in ("avg", "max") or not a.sample_ratio:
        return c.no_form(f"layout {a.layout}, mode {a.mode!r}")
    batch = c.emit("Slice", c.inputs[1], c.ints(0), c.ints(1), c.ints(1))
    batch = c.cast(c.emit("Squeeze", batch, c.ints(1)), int64)
    boxes = c.emit("Slice", c.inputs[1], c.ints(1), c.ints(5), c.ints(1))
    height, width = a.pooled_size
    mode = "half_pixel" if a.aligned else "output_half_pixel"
    return c.emit("RoiAlign", c.inputs[0], boxes, batch, mode=a.mode, output_height=height,
                  output_width=width, spatial_scale=a.spatial_scale,
                  sampling_ratio=max(a.sample_ratio, 0), coordinate_transformation_mode=mode)
