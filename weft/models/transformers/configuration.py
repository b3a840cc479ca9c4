"""The fields of a model's configuration: those of a transformers object, or of ``config.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.models.architecture import Activation
from weft.support.errors import InvalidModelError, UnsupportedModelError

# The names of transformers' ACT2FN.
ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh", "silu": "silu", "swish": "silu", "relu": "relu",
}
LARGEST_SIZE = 1 << 31


class Configuration:
    """Typed access to fields; ``defaults`` are those of a model type, for files that lack them."""

    def __init__(self, source: Any, kind: str, defaults: Mapping[str, Any]) -> None:
        self._source = source
        self._defaults = defaults
        self.kind = kind

    def get(self, *names: str) -> Any:
        """The first of the fields that is given and not null, else the default, else ``None``."""
        source = self._source
        for name in names:
            value = (source.get(name) if isinstance(source, Mapping)
                     else getattr(source, name, None))
            if value is not None:
                return value
        absent = [name for name in names if not self._is_given(name)]
        return next((self._defaults[name] for name in absent if name in self._defaults), None)

    def _is_given(self, name: str) -> bool:
        return (name in self._source if isinstance(self._source, Mapping)
                else hasattr(self._source, name))

    def size(self, *names: str) -> int:
        """A field that counts something: at least 1."""
        value = self._known(names)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < LARGEST_SIZE:
            raise self.invalid(names[0], "an integer from 1 on", value)
        return value

    def number(self, *names: str) -> float:
        value = self._known(names)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # noqa: PLR0124
            raise self.invalid(names[0], "a number", value)
        return float(value)

    def per_layer(self, name: str, layers: int) -> Sequence[Any] | None:
        """A list with a value per layer, or ``None`` without such a field."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) < layers:
            raise self.invalid(name, f"a list of {layers} values", value)
        return value

    def activation(self, *names: str) -> Activation:
        return activation_of(self.kind, self._known(names))

    def _known(self, names: Sequence[str]) -> Any:
        value = self.get(*names)
        if value is None:
            raise self.invalid(names[0], "a value", "no such field")
        return value

    def invalid(self, name: str, expected: str, got: Any) -> InvalidModelError:
        return InvalidModelError(f"invalid field {name!r} of a configuration", where=self.kind,
                                 expected=expected, got=repr(got)[:80])

    def refuse(self, what: str, **fields: Any) -> UnsupportedModelError:
        return UnsupportedModelError(f"{what} is not supported", where=self.kind, **fields)


def activation_of(kind: str, name: object) -> Activation:
    """The activation that transformers calls ``name``, for a model of the type ``kind``."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UnsupportedModelError(f"the activation {name!r} is not supported", where=kind,
                                    expected=", ".join(ACTIVATIONS))
    return ACTIVATIONS[name]
