"""What a translation reads of a transformers model: configuration, weights and rotary tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.models.architecture import Activation, Rotary
from weft.support.errors import UnsupportedModelError

# The names of transformers' ACT2FN.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "silu": "silu", "swish": "silu", "relu": "relu",
}
# Rotary embeddings whose frequencies do not depend on the length of the sequence.
_ROTARY_TYPES = ("default", "linear", "llama3", "yarn", "proportional")


class Source:
    """A transformers model that is translated: reads arrays, and renames them."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.config = model.config
        self._tensors: dict[str, Any] = model.state_dict()
        self.arrays: dict[str, np.ndarray] = {}

    def array(self, name: str) -> np.ndarray:
        """A weight as float32; weights in float32 are not copied."""
        if name not in self._tensors:
            raise UnsupportedModelError(f"the model lacks the weight {name!r}",
                                        where=self.config.model_type)
        return self._tensors[name].detach().float().cpu().numpy()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, source: str, name: str, *, transposed: bool = False, offset: float = 0.0
             ) -> None:
        """Add weight and bias of the module ``source``, if they exist, under ``name``.

        ``transposed`` matrices are (inputs, outputs); ``offset`` is added to the weight.
        """
        for kind in ("weight", "bias"):
            if f"{source}.{kind}" in self._tensors:
                value = self.array(f"{source}.{kind}")
                if kind == "weight":
                    value = value.T if transposed else value
                    value = value + np.float32(offset) if offset else value
                self.arrays[f"{name}.{kind}"] = np.ascontiguousarray(value)

    def take_output(self, source: str = "lm_head") -> None:
        """The matrix of the logits: one array with the embedding if they are tied."""
        self.take(source, "output")
        if getattr(self.config, "tie_word_embeddings", False):
            self.arrays["output.weight"] = self.arrays["embedding.weight"]

    def refuse(self, what: str, **fields: Any) -> UnsupportedModelError:
        return UnsupportedModelError(f"{what} is not supported", where=self.config.model_type,
                                     **fields)

    def activation(self, name: str) -> Activation:
        if name not in ACTIVATIONS:
            raise self.refuse(f"the activation {name!r}", expected=", ".join(ACTIVATIONS))
        return ACTIVATIONS[name]

    def rotary(self, module: Any, layer_type: str | None = None) -> Rotary:
        """The rotary embedding of a module like LlamaRotaryEmbedding.

        Gemma 3 has one embedding per type of layer.
        """
        kind, prefix = module.rope_type, ""
        if isinstance(kind, dict):
            kind, prefix = kind[layer_type], f"{layer_type}_"
        if kind not in _ROTARY_TYPES:
            raise self.refuse(f"the rotary embedding {kind!r}", expected=", ".join(_ROTARY_TYPES))
        frequencies = getattr(module, f"{prefix}inv_freq").detach().float().cpu().numpy()
        factor = float(getattr(module, f"{prefix}attention_scaling"))
        return Rotary(tuple(map(float, frequencies)), factor)
