"""Neural network operators: ``op.nn.conv2d``, ``op.nn.relu``, …"""

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
