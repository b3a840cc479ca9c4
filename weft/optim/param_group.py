"""Groups of parameters with their options, of which those that are numbers are tensors too."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from weft.eager.cell import watching
from weft.eager.functions import creation
from weft.eager.tensor import Tensor

# Options that say what a schedule or a constructor did, not what a step does.
_NOT_OF_STEPS = frozenset({"params", "param_names", "initial_lr"})


class ParamGroup(dict[str, Any]):
    """A dict of options and ``"params"``, as torch has it.

    ``tensor("lr")`` is an option that is a number, as a float64 scalar tensor, which assignment
    keeps in step: a compiled step reads it as an input, so that a new value does not compile the
    step again. The step is compiled for the other options that it reads, and for the answers of
    ``is_zero``.
    """

    # Traces learn from the class itself what they read.
    _watches_itself: ClassVar[bool] = True

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__()
        self._tensors: dict[str, list[Tensor]] = {}
        for name, value in options.items():
            self[name] = value

    def __getitem__(self, name: str) -> Any:
        watch = watching()
        if watch is not None and name in self:
            watch.option(self, name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:  # type: ignore[override]
        """The option, or ``default``."""
        return self[name] if name in self else default  # noqa: SIM401 - a read, which is noted

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        if name in self._tensors:
            if not _is_number(value):
                del self._tensors[name]
                return
            for tensor, number in zip(self._tensors[name], _numbers(value), strict=True):
                tensor.fill_(number)

    def update(self, *args: Any, **kwargs: Any) -> None:
        for name, value in dict(*args, **kwargs).items():
            self[name] = value

    def tensor(self, name: str, index: int = 0) -> Tensor:
        """The option, or one of its numbers, as a scalar tensor of float64."""
        if name not in self._tensors:
            value = super().__getitem__(name)
            several = value if isinstance(value, tuple | list) else (value,)
            if isinstance(several[index], Tensor):
                self[name]  # a read, which is noted: another tensor is another program
                return several[index].detach().reshape(()).to("float64")
            self._tensors[name] = [
                creation.tensor(np.float64(v), device="cpu") for v in _numbers(value)]
        return self._tensors[name][index]

    def is_zero(self, name: str) -> bool:
        """Whether the option is 0: a step then leaves out what it is for."""
        value = super().__getitem__(name)
        answer = not isinstance(value, Tensor) and bool(value == 0)
        watch = watching()
        if watch is not None:
            watch.is_zero(self, name, answer)
        return answer

    def make_tensors(self) -> None:
        """Make the tensors of all options that are numbers, before a step is traced."""
        for name, value in self.items():
            if name not in _NOT_OF_STEPS and _is_number(value):
                self.tensor(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return ParamGroup, (dict(self),)


def _is_number(value: Any) -> bool:
    """Whether a value is a number, or a tuple of numbers; a flag is none."""
    if isinstance(value, tuple | list):
        return bool(value) and all(map(_is_number, value))
    return isinstance(value, float | int | np.floating | np.integer) \
        and not isinstance(value, bool)


def _numbers(value: Any) -> list[float]:
    values: Iterable[Any] = value if isinstance(value, tuple | list) else (value,)
    return [float(v) for v in values]
