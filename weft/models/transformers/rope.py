"""Rotary embeddings by the fields of a configuration: plain, linear, Llama 3 and YaRN."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.models.architecture import Rotary
from weft.models.transformers.configuration import Configuration

# (frequencies, parameters, configuration) -> scaled frequencies, factor of cosines and sines
Scaling = Callable[[np.ndarray, Configuration, float], tuple[np.ndarray, float]]


def rotary_of(config: Configuration, head_dim: int, layer_type: str | None) -> Rotary:
    """The rotary embedding of a layer; ``layer_type`` chooses among those of Gemma 3."""
    parameters = _parameters(config, layer_type)
    kind = parameters.get("rope_type") or parameters.get("type") or "default"
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise config.refuse(f"the rotary embedding {kind!r}", expected=", ".join(_SCALINGS))
    fields = Configuration(parameters, config.kind, {"rope_theta": 10000.0})
    part = fields.get("partial_rotary_factor")
    if part is None:
        part = config.get("partial_rotary_factor", "rotary_pct")
    width = int(head_dim * (1.0 if part is None else float(part)))
    base = fields.number("rope_theta")
    if base <= 0 or not 1 < width <= head_dim:
        raise config.invalid("rope_theta", "a base above 0, and 2 elements to rotate", base)
    exponents = np.arange(0, width, 2, dtype=np.float32) / np.float32(width)
    frequencies = np.float32(1) / np.float32(base) ** exponents
    if "original_max_position_embeddings" not in parameters:
        parameters["original_max_position_embeddings"] = (
            config.get("original_max_position_embeddings", "max_position_embeddings"))
    scaled, factor = _SCALINGS[kind](frequencies, fields, base)
    return Rotary(tuple(map(float, scaled)), factor)


def _parameters(config: Configuration, layer_type: str | None) -> dict[str, Any]:
    """The fields of ``rope_parameters``, or those that older files have in its place."""
    found = config.get("rope_parameters", "rope_scaling")
    if found is not None and not isinstance(found, Mapping):
        raise config.invalid("rope_parameters", "an object", found)
    found = dict(found or {})
    if layer_type is not None and isinstance(found.get(layer_type), Mapping):
        return dict(found[layer_type])
    local = config.get("rope_local_base_freq")
    if layer_type == "sliding_attention" and local is not None:
        return {"rope_theta": local}
    theta = config.get("rope_theta", "rotary_emb_base")
    return {"rope_theta": theta, **found} if theta is not None else found


def _default(frequencies: np.ndarray, fields: Configuration, base: float
             ) -> tuple[np.ndarray, float]:
    del fields, base
    return frequencies, 1.0


def _linear(frequencies: np.ndarray, fields: Configuration, base: float
            ) -> tuple[np.ndarray, float]:
    del base
    return frequencies / np.float32(fields.number("factor")), 1.0


def _llama3(frequencies: np.ndarray, fields: Configuration, base: float
            ) -> tuple[np.ndarray, float]:
    """Long wavelengths are divided by a factor, short ones kept, those between interpolated."""
    del base
    factor, low, high = (fields.number(name) for name in
                         ("factor", "low_freq_factor", "high_freq_factor"))
    context = fields.number("original_max_position_embeddings")
    wavelengths = np.float32(2 * math.pi) / frequencies
    smooth = (context / wavelengths - low) / (high - low)
    between = (1 - smooth) * frequencies / factor + smooth * frequencies
    found = np.where(wavelengths > context / low, frequencies / factor, between)
    return np.where(wavelengths < context / high, frequencies, found), 1.0


def _yarn(frequencies: np.ndarray, fields: Configuration, base: float
          ) -> tuple[np.ndarray, float]:
    """YaRN (Peng et al., 2023): a ramp between interpolated and unchanged frequencies."""
    factor, context = (fields.number(name) for name in
                       ("factor", "original_max_position_embeddings"))
    pairs = len(frequencies)

    def pair_of(rotations: float) -> float:
        return 2 * pairs * math.log(context / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = pair_of(float(fields.get("beta_fast") or 32))
    high = pair_of(float(fields.get("beta_slow") or 1))
    if fields.get("truncate") is not False:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, 2 * pairs - 1)
    width = high - low if high != low else 0.001
    ramp = np.clip((np.arange(pairs, dtype=np.float32) - low) / width, 0, 1)
    scaled = frequencies / factor * ramp + frequencies * (1 - ramp)
    given = fields.get("attention_factor")
    if given is None:
        scales = [fields.get(name) for name in ("mscale", "mscale_all_dim")]
        given = (_magnitude(factor, scales[0]) / _magnitude(factor, scales[1]) if all(scales)
                 else _magnitude(factor, 1.0))
    return scaled, float(given)


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


_SCALINGS: dict[str, Scaling] = {
    "default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn,
}
