"""Decoders from folders of Hugging Face: ``config.json`` and safetensors files, without torch."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.models.architecture import Architecture, Weights
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.families import FAMILIES
from weft.models.transformers.quantized import Stored, quantized_tensors
from weft.models.transformers.source import Source
from weft.models.transformers.translate import translate
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.support.safetensors_file import map_tensors

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
LARGEST_JSON = 256 << 20


def architecture_of_folder(folder: Path) -> tuple[Architecture, Weights]:
    """Architecture and weights; weights are views of the mapped files, in their own dtype.

    Those of quantised checkpoints are in blocks (``weft.models.transformers.quantized``).
    """
    fields = read_json(folder / "config.json")
    kind = fields.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UnsupportedModelError(f"models of the type {kind!r} are not supported",
                                    where=folder / "config.json",
                                    expected=", ".join(sorted(FAMILIES)))
    family = FAMILIES[kind]
    files, config = tensors_of(folder), fields.get("quantization_config")
    tensors: Mapping[str, Stored] = (
        quantized_tensors(files, config, folder / "config.json") if config else files)
    source = Source(tensors, None, kind)
    return translate(Configuration(fields, kind, family.defaults), source, family)


def tensors_of(folder: Path) -> dict[str, Callable[[], np.ndarray]]:
    """The tensors of all safetensors files of a model, by name."""
    if not (folder / INDEX).exists():
        return map_tensors(folder / SINGLE)
    names = read_json(folder / INDEX).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(f, str) for f in names.values()):
        raise InvalidModelError("an index without a map of weights", where=folder / INDEX)
    found: dict[str, Callable[[], np.ndarray]] = {}
    for name in sorted(set(names.values())):
        if Path(name).name != name:
            raise InvalidModelError("an index that names a file outside of the folder",
                                    where=folder / INDEX, got=name)
        found |= map_tensors(folder / name)
    absent = [name for name in names if name not in found]
    if absent:
        raise InvalidModelError("weights of the index are in none of its files",
                                where=folder / INDEX, got=", ".join(absent[:5]))
    return found


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds; ``InvalidModelError`` if it is missing or holds none."""
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise InvalidModelError("a file in JSON is too large", where=path)
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidModelError("a file cannot be read", where=path, got=error) from None
    if not isinstance(found, dict):
        raise InvalidModelError("a file without an object in JSON", where=path)
    return found
