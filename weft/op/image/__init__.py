"""Image operators: ``op.image.resize2d``, ``op.image.grid_sample``, …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
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
else:
    load_names_lazily(__name__, NAMES[__name__])

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
