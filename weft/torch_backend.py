"""weft as a backend of ``torch.compile``: ``torch.compile(model, backend=weft.torch_backend)``.

The module is called as its function ``torch_backend`` is. So ``weft.torch_backend`` is the same
thing whether or not anybody has imported it as a module before.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from weft.compiler.torch_backend import torch_backend

__all__ = ["torch_backend"]


class _Backend(ModuleType):
    """A module that can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch_backend(*args, **kwargs)


sys.modules[__name__].__class__ = _Backend
