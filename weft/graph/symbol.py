"""The public name of ``weft.compat.symbol``: graphs as symbols, NNVM's interface."""

from weft.compat.symbol import *  # noqa: F403 - its ``__all__`` is the list of public names
from weft.compat.symbol import __all__  # noqa: F401
