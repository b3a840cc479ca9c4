"""Kernels of other compilers that loop programs launch: PTX texts, and Python kernels for GPUs.

A program holds a launch as a nest of loops bound to blocks and threads around a ``call_extern`` of
the kernel's ``symbol``. The operands are what the kernel takes: addresses of buffers, sizes, and
constants. Code generation makes a launch of it (``weft.codegen.cuda.foreign_kernels``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from weft.support.dataclass import dataclass
from weft.tir.func import PrimFunc
from weft.tir.python_function import ArrayParam, Scalar

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*(?:\(([^)]*)\))?")
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_PARAM = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s*[^,]*?\s)?"
                    r"([\w$]+)\s*(\[)?")


@dataclass(frozen=True, slots=True)
class ForeignKernel:
    """A kernel under the name ``symbol``, which differs whenever the machine code would.

    ``source`` is PTX with the kernel ``entry``, or a Python function that numba-cuda compiles for
    the types of ``parameters``. ``shared_bytes`` is dynamic shared memory.
    """

    symbol: str
    source: str | Callable[..., Any]
    entry: str
    parameters: tuple[ArrayParam | Scalar, ...] = ()
    shared_bytes: int = 0


def cuda_options(body: Any) -> tuple[str, ...]:
    """The options of ``numba.cuda.jit`` that the code of ``body`` depends on, if it has any."""
    options = getattr(body, "targetoptions", {})
    return tuple(f"{key}={options[key]!r}" for key in ("device", "fastmath", "launch_bounds")
                 if options.get(key))


def foreign_kernels_of(func: PrimFunc) -> Mapping[str, ForeignKernel]:
    """The kernels of other compilers that a loop program launches, by symbol."""
    return func.attrs.get("foreign_kernels", {})


def ptx_entries(text: str) -> dict[str, tuple[str, ...]]:
    """The types of the parameters of each kernel in a PTX text; ``bytes`` for an array of them."""
    plain = _COMMENT.sub(" ", text)
    return {name: tuple("bytes" if array else kind for kind, _, array in _PARAM.findall(params))
            for name, params in _ENTRY.findall(plain)}
