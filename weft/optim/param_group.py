"""Groups of parameters with their options, of which those that schedules change are tensors too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.eager.tensor import Tensor

# The options that schedules change. A compiled step reads them as inputs, so that a new value does
# not compile the step again; the other options are constants of the step.
SCHEDULED = ("lr", "momentum", "betas")


class ParamGroup(dict[str, Any]):
    """A dict of options and ``"params"``, as torch has it.

    ``tensor("lr")`` is the option as a float64 scalar tensor, which assignment keeps in step.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self._tensors: dict[str, list[Tensor]] = {}
        for name, value in options.items():
            self[name] = value

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name in self._tensors:
            for tensor, number in zip(self._tensors[name], _numbers(value), strict=True):
                tensor.fill_(number)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def tensor(self, name: str, index: int = 0) -> Tensor:
        """The option, or one of its numbers, as a scalar tensor of float64."""
        if name not in self._tensors:
            self._tensors[name] = [Tensor(np.float64(v)) for v in _numbers(self[name])]
        return self._tensors[name][index]

    def make_tensors(self) -> None:
        """Make the tensors of all scheduled options, before a step is traced."""
        for name in SCHEDULED:
            if name in self:
                self.tensor(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParamGroup, (dict(self),)


def _numbers(value: Any) -> list[float]:
    values: Iterable[Any] = value if isinstance(value, tuple | list) else (value,)
    return [float(v) for v in values]
