"""Programs as graphs of named nodes, in TensorFlow's terms: ``weft.compat.graph``.

``weft.graph.symbol`` is that of ``weft.compat.symbol``, NNVM's interface (docs/graphs.md,
docs/symbols.md).
"""

from weft.compat.graph import *  # noqa: F403 - its ``__all__`` is the list of public names
from weft.compat.graph import __all__  # noqa: F401
