"""Factorizations of batches of matrices: ``op.linalg.lu``, ``op.linalg.cholesky``, …"""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
