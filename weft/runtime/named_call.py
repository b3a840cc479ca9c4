"""``NamedCall``: a function of some tensors of a model, made once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from weft.runtime.run_control import RunControl
from weft.support.errors import InvalidInputError


class _Runs(Protocol):
    def run(self, output_names: Sequence[str] | None, feeds: dict[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """The named outputs for inputs by name."""
        ...


class NamedCall:
    """Calls a program with its ``inputs`` by position; gives the list of its outputs."""

    def __init__(self, program: _Runs, outputs: Sequence[str] | None, inputs: Sequence[str]
                 ) -> None:
        self._program = program
        self._outputs = None if outputs is None else tuple(outputs)
        self.inputs = tuple(inputs)

    def __call__(self, *values: Any, control: RunControl | None = None) -> list[np.ndarray]:
        """Raises ``InvalidInputError`` for another number of values, and what ``run`` raises."""
        if len(values) != len(self.inputs):
            raise InvalidInputError("wrong number of arguments", got=len(values),
                                    expected=f"{len(self.inputs)}: {', '.join(self.inputs)}")
        return self._program.run(self._outputs, dict(zip(self.inputs, values, strict=True)),
                                 control)
