"""Operators of images: ``op.image.resize2d``, ``op.image.grid_sample``, …"""

from weft.op.image.resize import (
    Resize1DAttrs,
    Resize2DAttrs,
    Resize3DAttrs,
    resize1d,
    resize2d,
    resize3d,
)

__all__ = [
    "Resize1DAttrs",
    "Resize2DAttrs",
    "Resize3DAttrs",
    "resize1d",
    "resize2d",
    "resize3d",
]
