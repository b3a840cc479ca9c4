"""Artifacts of programs with state, whose first values are those of the exporting module."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

import numpy as np

from weft.codegen import backend_of
from weft.compiler.compiled_model import CompiledModel
from weft.export import export_artifact, export_c
from weft.support.errors import OptionError

_ALIGNMENT = 64


def export_with_state(model: CompiledModel, states: Mapping[str, np.ndarray],
                      path: str | os.PathLike[str], format: str = "weft") -> None:
    """Write ``model`` as an artifact that starts with these values of its states.

    They follow the constants (``Manifest.initial``). ``format`` is that of ``model.export``. Raises
    what ``model.export`` raises.
    """
    if format not in ("weft", "c"):
        raise OptionError("unknown format of an artifact", got=repr(format),
                          expected="'weft' or 'c'")
    code, target = model._code, model.options.target  # noqa: SLF001 - of this package
    code.check_portable()
    backend = backend_of(target)
    block, offsets = _with_values(code.constants, [states[s.name] for s in code.manifest.states])
    manifest = dataclasses.replace(code.manifest, constants_bytes=len(block), initial=offsets)
    if format == "c":
        own = code.objects[: len(code.objects) - len(backend.support_objects(target))]
        export_c(path, manifest, own, block, target)
    else:
        export_artifact(path, manifest, backend.link(code.objects, target), block)


def _with_values(constants: np.ndarray, values: list[np.ndarray]
                 ) -> tuple[np.ndarray, tuple[int, ...]]:
    """The constants followed by the values of states, and the offsets of these."""
    parts = [np.asarray(constants).reshape(-1).view(np.uint8)]
    size, offsets = parts[0].nbytes, []
    for value in values:
        gap = -size % _ALIGNMENT
        parts.append(np.zeros(gap, np.uint8))
        offsets.append(size + gap)
        parts.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
        size += gap + value.nbytes
    return np.concatenate(parts), tuple(offsets)
