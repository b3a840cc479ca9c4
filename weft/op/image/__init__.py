"""Image operators: ``op.image.resize2d``, ``op.image.grid_sample``, …"""

from weft.op.image.dilation2d import Dilation2DAttrs, dilation2d
from weft.op.image.resize import (
    Resize1DAttrs,
    Resize2DAttrs,
    Resize3DAttrs,
    resize1d,
    resize2d,
    resize3d,
)
from weft.op.image.sample import (
    AffineGridAttrs,
    CropAndResizeAttrs,
    GridSampleAttrs,
    affine_grid,
    crop_and_resize,
    grid_sample,
)

__all__ = [
    "AffineGridAttrs",
    "CropAndResizeAttrs",
    "Dilation2DAttrs",
    "GridSampleAttrs",
    "Resize1DAttrs",
    "Resize2DAttrs",
    "Resize3DAttrs",
    "affine_grid",
    "crop_and_resize",
    "dilation2d",
    "grid_sample",
    "resize1d",
    "resize2d",
    "resize3d",
]
