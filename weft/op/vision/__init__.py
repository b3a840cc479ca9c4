"""Object detection operators: ``op.vision.roi_align``, ``op.vision.non_max_suppression``, …"""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
