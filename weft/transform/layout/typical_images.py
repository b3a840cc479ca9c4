"""The sizes of images that decisions assume for symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir import Dim, Shape, SymDim, TensorType, range_of, substitute_dim

# The height or width that decisions assume without a narrower range. Classifiers take 224,
# detectors 640, and inner layers a fraction of it, which their types express: ``floordiv(h + 1,
# 2)``.
TYPICAL_IMAGE_SIZE = 224
# A decision that is good for one image is also good for many images, but not vice versa.
TYPICAL_BATCH = 1


def typical_image_shape(shape: Shape, batch_axis: int = 0) -> tuple[int, ...]:
    """The sizes that decisions assume for images of this shape; fixed sizes are kept."""
    return tuple(_size(dim, TYPICAL_BATCH if axis == batch_axis else TYPICAL_IMAGE_SIZE)
                 for axis, dim in enumerate(shape))


def typical_image_type(type_: TensorType) -> TensorType:
    """The type with the sizes of ``typical_image_shape``; the batch is the first axis."""
    return TensorType(typical_image_shape(type_.shape), type_.dtype)


def _size(dim: Dim, typical: int) -> int:
    """The dimension in which each symbol is as near to ``typical`` as its range allows."""
    if isinstance(dim, SymDim):
        values: Mapping[str, Dim] = {symbol: max(range_of(symbol).nearest(typical), 1)
                                     for symbol in dim.symbols()}
        dim = substitute_dim(dim, values)
    return max(dim, 0) if isinstance(dim, int) else typical
