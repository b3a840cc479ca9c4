"""The operator catalogue. Importing it makes every built-in operator known by name.

The module that defines an operator is imported when the operator is first used; ``index.py`` says
which it is.

``op.add``, ``op.nn.conv2d`` and so on are the operator records; call one to build a call:
``op.nn.relu(op.add(x, y))``.
"""

from weft.ir.op import OPS, define_op  # noqa: F401 - ``weft.define_op`` knows what names are taken
from weft.op.index import NAMES, OPERATORS
from weft.support.lazy_package import load_names_lazily

load_names_lazily(__name__, NAMES[__name__])
OPS.add_index(OPERATORS)
