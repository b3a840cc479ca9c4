"""Random operators: each takes a key, and returns the next key with its random numbers."""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
