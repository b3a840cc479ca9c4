"""Special functions: ``op.special.erfinv``, ``op.special.lgamma``, ``op.special.bessel_j0``, …"""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
