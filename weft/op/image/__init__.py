"""Image operators: ``op.image.resize2d``, ``op.image.grid_sample``, …"""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
