"""Low-rank adapters (LoRA, Hu et al., 2021) of language models, under the names of weft."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from weft.models.architecture import Architecture, Weights
from weft.models.transformers.families import FAMILIES
from weft.models.transformers.translate import rows_by_name
from weft.runtime.weights import Tensors, adapter_of, low_rank_pairs
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError

# The rows of a matrix of a module, by the weights that hold them.
RowsByName: TypeAlias = "Callable[[str, np.ndarray], Mapping[str, np.ndarray]]"


@dataclass(frozen=True)
class Adapter:
    """A (rank, in) and B (out, rank) by the name of the matrix to which ``B @ A`` is added."""

    pairs: Mapping[str, tuple[np.ndarray, np.ndarray]]

    @property
    def rank(self) -> int:
        """The largest rank."""
        return max((len(down) for down, _ in self.pairs.values()), default=0)


def read_adapter(adapter: Tensors, scale: float, rows: RowsByName, weights: Weights) -> Adapter:
    """An adapter as peft writes it (``mod.apply_lora``), which fits ``weights``.

    Raises ``InvalidInputError`` for one that does not.
    """
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    where = str(adapter) if isinstance(adapter, (str, os.PathLike)) else None
    for module, (down, up) in low_rank_pairs(*adapter_of(adapter), scale).items():
        parts = rows(module, up)
        if not parts:
            raise InvalidInputError("the adapter changes what the model lacks, or what adapters "
                                    "do not change", where=where, got=module)
        for name, part in parts.items():
            known = f"{name}.weight" in weights
            shape = weights.shape_of(f"{name}.weight") if known else None
            if shape != (len(part), down.shape[1]):
                raise InvalidInputError(f"an adapter does not fit the weight {name!r}", where=where,
                                        expected=f"B @ A of shape {shape}",
                                        got=f"A {down.shape}, B {part.shape}")
            found[name] = down, part
    return Adapter(found)


def rows_of_family(kind: str, architecture: Architecture) -> RowsByName | None:
    """The names of a type of models; ``None`` for an unknown one."""
    family = FAMILIES.get(kind)
    if family is None:
        return None
    return lambda module, rows: rows_by_name(family, architecture, module, rows)


def with_adapters(weights: Weights, adapters: Iterable[Adapter]) -> dict[str, np.ndarray]:
    """The weights that adapters change, with their new values."""
    found: dict[str, np.ndarray] = {}
    for adapter in adapters:
        for name, (down, up) in adapter.pairs.items():
            key = f"{name}.weight"
            before = found.get(key)
            before = weights[key].astype(np.float32) if before is None else before
            found[key] = before + up @ down
    return {name: value.astype(weights[name].dtype) for name, value in found.items()}


def fill_inputs(inputs: Mapping[str, np.ndarray], adapters: Iterable[Adapter], rank: int
                ) -> dict[str, np.ndarray]:
    """The inputs of a program for adapters, which lie one behind the other in ``rank`` rows."""
    found = {name: np.zeros_like(array) for name, array in inputs.items()}
    used: dict[str, int] = {}
    for adapter in adapters:
        for name, (down, up) in adapter.pairs.items():
            start = used.get(name, 0)
            used[name] = end = start + len(down)
            if end > rank:
                raise InvalidInputError("the adapters have a larger rank than the model has room "
                                        "for", where=name, expected=f"at most {rank}", got=end,
                                        help=f"load the model with lora_rank={end}")
            found[f"{name}.lora_a"][start:end] = down
            found[f"{name}.lora_b"][:, start:end] = up
    return found
