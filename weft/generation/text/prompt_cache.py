"""Files with the keys and values of a prompt, so that a model need not read the prompt again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from weft.models.architecture import Architecture, Weights
from weft.models.paged_decoder import PagedDecoder
from weft.support.errors import InvalidInputError
from weft.support.safetensors_file import map_tensors, write_tensors

_SAMPLE = 4096  # bytes of either end of a weight that tell models apart


def identity_of(architecture: Architecture, weights: Weights) -> bytes:
    """What tells a model from others: its architecture, and samples of all of its weights."""
    digest = hashlib.blake2b(repr(architecture).encode(), digest_size=32)
    for name in sorted(weights.names()):
        blocks = weights.blocks(name)
        array, kind = ((weights[name], "") if blocks is None else (blocks.data, blocks.format))
        digest.update(f"{name} {array.dtype} {array.shape} {kind}".encode())
        for rows in (array[:1], array[-1:]):
            digest.update(np.ascontiguousarray(rows).tobytes()[:_SAMPLE])
    return digest.digest()


def save_cache(decoder: PagedDecoder, slot: int, tokens: np.ndarray, identity: bytes, path: Path
               ) -> None:
    """Write what a slot holds of ``tokens``, all at once or not at all."""
    arrays = {f"cache.{number:04}": array for number, array in enumerate(decoder.cached(slot))}
    write_tensors(path, {**arrays, "tokens": tokens.astype(np.int64),
                         "model": np.frombuffer(identity, np.uint8)})


def load_cache(decoder: PagedDecoder, slot: int, identity: bytes, path: Path) -> np.ndarray:
    """Fill a slot from a file; the tokens that it holds.

    Raises ``InvalidInputError`` for the file of another model, or one that does not fit, and
    ``InvalidModelError`` for a damaged one.
    """
    arrays = {name: read() for name, read in map_tensors(path).items()}
    tokens = _tokens_of(arrays, identity, decoder, path)
    found = [array for name, array in sorted(arrays.items()) if name.startswith("cache.")]
    decoder.restore(slot, len(tokens), found, where=path)
    return tokens


def _tokens_of(arrays: Mapping[str, np.ndarray], identity: bytes, decoder: PagedDecoder,
               path: Path) -> np.ndarray:
    tokens, model = arrays.get("tokens"), arrays.get("model")
    if tokens is None or model is None or tokens.dtype != np.int64 or tokens.ndim != 1:
        raise InvalidInputError("not the cache of a prompt", where=path,
                                expected="a file that save_cache has written")
    if model.tobytes() != identity:
        raise InvalidInputError("the cache of a prompt of another model", where=path,
                                help="write it again with this model")
    if not 0 < len(tokens) <= decoder.capacity:
        raise InvalidInputError("the cache of a prompt does not fit into the context", where=path,
                                expected=f"1 to {decoder.capacity} tokens", got=len(tokens),
                                help="load the model with a larger capacity=")
    return tokens
