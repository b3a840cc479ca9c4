"""weft as a backend of ``torch.compile``: ``torch.compile(model, backend=weft.torch_backend)``.

The module has the name of its function and can be called like it, so ``weft.torch_backend`` means
the same whether or not the module was imported before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from weft.compiler.integrations.torch.backend import torch_backend

__all__ = ["torch_backend"]


class _CallableModule(ModuleType):
    """A module whose call is a call of ``torch_backend``."""

    def __call__(self, *args: Any, **kwargs: Any) -> Callable[..., Any]:
        return torch_backend(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
