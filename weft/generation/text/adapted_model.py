"""The adapters of a language model: in its weights, or as inputs beside weights in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from weft.models.adapters import Adapter, RowsByName, fill_inputs, read_adapter, with_adapters
from weft.models.architecture import Weights
from weft.models.compiled_decoder import CompiledDecoder
from weft.runtime.weights import Tensors
from weft.support.errors import InvalidInputError


class AdaptedWeights:
    """The weights of a model as its files have them, and the adapters that change them.

    ``rows`` gives the names of modules of adapters; ``None`` for a model without such names.
    """

    def __init__(self, base: Weights, rows: RowsByName | None) -> None:
        self.base = base
        self._rows = rows
        self.adapters: tuple[Adapter, ...] = ()

    @property
    def has_blocks(self) -> bool:
        """Whether matrices are in blocks."""
        return any(self.base.blocks(name) is not None for name in self.base.names())

    def read(self, adapter: Tensors, scale: float) -> Adapter:
        """An adapter of this model; ``InvalidInputError`` for one that does not fit."""
        if self._rows is None:
            raise InvalidInputError("adapters of this type of models have unknown names")
        return read_adapter(adapter, scale, self._rows, self.base)

    def needs_inputs(self, adapters: Sequence[Adapter]) -> bool:
        """Whether a matrix that they change is in blocks, so that it has no sum with them."""
        return any(self.base.blocks(f"{name}.weight") is not None
                   for adapter in adapters for name in adapter.pairs)

    def merged(self) -> Weights:
        """The weights with those adapters that can be added to them."""
        if self.needs_inputs(self.adapters):
            return self.base
        return self.base.changed(with_adapters(self.base, self.adapters))

    def use(self, decoder: CompiledDecoder, adapters: Sequence[Adapter]) -> None:
        """Let a decoder of these weights compute with ``adapters`` and no others."""
        if decoder.adapter_rank:
            decoder.adapters = fill_inputs(decoder.adapters, adapters, decoder.adapter_rank)
        elif self.needs_inputs(adapters):
            rank = sum(adapter.rank for adapter in adapters)
            raise InvalidInputError(
                "weights in blocks cannot be changed by adapters, which run beside them",
                help=f"load the model with adapters=[...], or with room for them: lora_rank={rank}")
        else:
            changed = with_adapters(self.base, adapters)
            names = {name for adapter in self.adapters for name in adapter.pairs}
            before = {f"{name}.weight": self.base[f"{name}.weight"] for name in names}
            known = decoder.executable.weights()
            decoder.executable.set_weights({name: value.astype(known[name].dtype) for name, value
                                            in {**before, **changed}.items()})
        self.adapters = tuple(adapters)

    def identity(self, base: bytes) -> bytes:
        """What tells the model from others: ``base``, changed by each adapter."""
        for adapter in self.adapters:
            digest = hashlib.blake2b(base, digest_size=len(base) or 32)
            for name, pair in sorted(adapter.pairs.items()):
                digest.update(name.encode() + b"".join(part.tobytes() for part in pair))
            base = digest.digest()
        return base
