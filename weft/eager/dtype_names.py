"""The dtypes whose names in torch are those of Python's types: ``weft.float``, ``weft.int``."""

from weft.eager.dtypes import bool_ as bool  # noqa: F401 - public
from weft.eager.dtypes import float32 as float  # noqa: F401 - public
from weft.eager.dtypes import int32 as int  # noqa: F401 - public
