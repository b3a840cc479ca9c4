"""StableHLO modules, and through them functions of JAX, as weft modules.

Text is read by weft's own parser. JAX and jaxlib are imported for functions of JAX and for
bytecode alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.support.errors import OptionError
from weft.support.interpreter import interrupts_held

if TYPE_CHECKING:
    from weft.ir.module import IRModule

__all__ = ["from_stablehlo", "load_jax_part"]


def from_stablehlo(text: str, *, inputs: Mapping[str, Sequence[object] | None] | None = None
                   ) -> IRModule:
    """Import the text of a StableHLO module as a typed module.

    ``inputs`` gives names and numbers to the sizes that the module leaves open (``?``), by the
    names of inputs. Raises ``InvalidModelError`` for damaged text, and ``UnsupportedModelError``
    that lists all operations and types that weft does not support.
    """
    importer = importlib.import_module("weft.frontend.stablehlo.importer")
    return importer.import_text(text, inputs or {})  # type: ignore[no-any-return]


def load_jax_part(name: str) -> Any:
    """A module of this package that imports jax; ``OptionError`` where it is not installed."""
    try:
        with interrupts_held():
            return importlib.import_module(f"weft.frontend.stablehlo.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in ("jax", "jaxlib"):
            raise
        raise OptionError("reading functions of JAX and StableHLO bytecode needs jax",
                          got=f"no module named {error.name!r}",
                          help="pip install weft[jax], or give the module as text") from None
