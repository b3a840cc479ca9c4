"""The weights of a model under the names of weft: from a transformers model, or from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft.models.architecture import BlockWeight
from weft.support.errors import UnsupportedModelError


class Source:
    """Arrays by their names in a model, in their own dtype; ``take`` gives them other names.

    ``tensors`` gives an array when it is called with no argument: weights are read when they are
    needed.
    """

    def __init__(self, tensors: Mapping[str, Callable[[], np.ndarray | BlockWeight]],
                 config: Any, kind: str) -> None:
        self._tensors = tensors
        self.config = config
        self.kind = kind
        self.arrays: dict[str, Any] = {}  # those of a quantised checkpoint in blocks

    @staticmethod
    def of_module(model: Any) -> Source:
        """The parameters of a torch module; float32, bfloat16 and float16 are shared with it."""
        return Source({name: lambda tensor=tensor: numpy_array(tensor)
                       for name, tensor in model.state_dict().items()}, model.config,
                      model.config.model_type)

    def _found(self, name: str) -> str | None:
        """``name`` as the model has it: files of base models lack the first part of names."""
        if name in self._tensors:
            return name
        rest = name.partition(".")[2]
        return rest if rest in self._tensors else None

    def array(self, name: str) -> np.ndarray:
        """A weight as floats; ``UnsupportedModelError`` for a missing one, and one in blocks."""
        found = self.weight(name)
        if isinstance(found, BlockWeight):
            raise UnsupportedModelError(f"the weight {name!r} in blocks is not supported",
                                        where=self.kind, expected="floats", got=found.format)
        return found

    def weight(self, name: str) -> np.ndarray | BlockWeight:
        found = self._found(name)
        if found is None:
            raise UnsupportedModelError(f"the model lacks the weight {name!r}", where=self.kind)
        return self._tensors[found]()

    def __contains__(self, name: str) -> bool:
        return self._found(name) is not None

    def take(self, source: str, name: str, *, transposed: bool = False, offset: float = 0.0
             ) -> None:
        """Add weight and bias of the module ``source``, if they exist, under ``name``.

        ``transposed`` matrices are (inputs, outputs); ``offset`` is added to the weight.
        """
        for kind in ("weight", "bias"):
            if f"{source}.{kind}" in self:
                value = self.weight(f"{source}.{kind}")
                if isinstance(value, BlockWeight):  # its rows are outputs, whatever floats are
                    self.arrays[f"{name}.{kind}"] = value
                    continue
                if kind == "weight":
                    value = value.T if transposed and value.ndim == 2 else value
                    value = value.astype(np.float32) + np.float32(offset) if offset else value
                self.arrays[f"{name}.{kind}"] = np.ascontiguousarray(value)

    def take_output(self, source: str, *, tied: bool) -> None:
        """The matrix of the logits: one array with the embedding if they are tied."""
        self.take(source, "output")
        if tied:
            self.arrays["output.weight"] = self.arrays["embedding.weight"]


def numpy_array(tensor: Any) -> np.ndarray:
    """A torch tensor as an array, shared if its dtype is a float of 16 or 32 bits."""
    import ml_dtypes
    import torch

    value = tensor.detach().cpu()
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return (value if value.dtype == torch.float16 else value.float()).numpy()
