"""The sizes that choices about images assume where the program leaves them open."""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir import Dim, Shape, SymDim, TensorType, range_of, substitute_dim

# What a height or width without a narrower range counts as. Classifiers take 224, detectors 640,
# and the layers further in a fraction of it, which their types say: ``floordiv(h + 1, 2)``.
TYPICAL_IMAGE_SIZE = 224
# A choice that is good for one image is good for many, and not the other way round.
TYPICAL_BATCH = 1


def typical_image_shape(shape: Shape, batch_axis: int = 0) -> tuple[int, ...]:
    """The sizes that choices assume for images of this shape; fixed sizes are kept."""
    return tuple(_size(dim, TYPICAL_BATCH if axis == batch_axis else TYPICAL_IMAGE_SIZE)
                 for axis, dim in enumerate(shape))


def typical_image_type(type_: TensorType) -> TensorType:
    """The type with the sizes of ``typical_image_shape``; the batch is the first axis."""
    return TensorType(typical_image_shape(type_.shape), type_.dtype)


def _size(dim: Dim, typical: int) -> int:
    """The dimension where each of its symbols is as near to ``typical`` as its range allows."""
    if isinstance(dim, SymDim):
        values: Mapping[str, Dim] = {symbol: max(range_of(symbol).nearest(typical), 1)
                                     for symbol in dim.symbols()}
        dim = substitute_dim(dim, values)
    return max(dim, 0) if isinstance(dim, int) else typical
