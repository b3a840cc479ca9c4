"""Quantized operators: integers that represent real numbers by a scale and a zero point.

``op.qnn.add`` and so on are the operator records. Each is composed of operators on integers and
floats (``composed``), by which the pass ``qnn_canonicalize`` replaces it.
"""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
