"""The package ``needle`` with names of ``weft.compat.needle``, for the course's own tests.

``docs/coming_from.md`` says how to run those.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

from weft.compat import needle
from weft.compat.needle import autograd, data, init, ndarray, nn, ops, optim, recurrent, transformer


def module(name: str, *sources: Any, **names: Any) -> None:
    """Make an importable module of the names of others."""
    made = types.ModuleType(name)
    for source in sources:
        made.__dict__.update({n: getattr(source, n) for n in dir(source) if n[:2] != "__"})
    made.__dict__.update(names)
    sys.modules[name] = made


module("needle", needle, ops, ndarray)
for name, sources in {
    "nn": (nn, recurrent, transformer), "ops": (ops,), "init": (init,), "data": (data,),
    "optim": (optim,), "backend_ndarray": (ndarray,), "backend_selection": (ndarray,),
}.items():
    module(f"needle.{name}", *sources)
    setattr(sys.modules["needle"], name, sys.modules[f"needle.{name}"])
sys.modules["needle.autograd"] = autograd  # with a counter of tensors, which it computes
module("mugrade", submit=lambda *values: None)
if os.environ.get("NEEDLE_BACKEND") == "np":
    ndarray.set_default_device(ndarray.cpu_numpy())
