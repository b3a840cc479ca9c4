"""Methods of tensors that draw random numbers."""

from __future__ import annotations

import importlib
from typing import Any

from weft.eager.record import as_node, wrap
from weft.eager.signature import checked, renamed


def numbers() -> Any:
    """The functions that draw, whose default generator is a tensor: imported at the first draw."""
    return importlib.import_module("weft.eager.functions.random")


class Drawn:
    """Methods that replace the elements by random numbers."""

    __slots__ = ()
    copy_: Any

    @checked
    def uniform_(self, from_: float = 0.0, to: float = 1.0, *,
                 generator: Any = None, **named: Any) -> Any:
        """Numbers uniformly distributed from ``from`` to ``to``."""
        low = named.pop("from", from_)
        renamed("uniform_", named, frozenset(("from", "to", "generator")))
        spec = as_node(self).sig.out
        return self.copy_(wrap(numbers().uniform(spec.shape, low, to, spec.dtype, generator)))

    @checked
    def normal_(self, mean: float = 0.0, std: float = 1.0, *,
                generator: Any = None) -> Any:
        """Normally distributed numbers."""
        spec = as_node(self).sig.out
        return self.copy_(wrap(numbers().normal_node(spec.shape, mean, std, spec.dtype, generator)))

    @checked
    def log_normal_(self, mean: float = 1.0, std: float = 2.0, *,
                    generator: Any = None) -> Any:
        """Numbers whose logarithm is normally distributed."""
        spec = as_node(self).sig.out
        drawn = wrap(numbers().normal_node(spec.shape, mean, std, spec.dtype, generator))
        return self.copy_(drawn.exp())

    @checked
    def exponential_(self, lambd: float = 1.0, *, generator: Any = None) -> Any:
        """Exponentially distributed numbers of rate ``lambd``."""
        spec = as_node(self).sig.out
        return self.copy_(numbers().exponential_of(spec.shape, lambd, spec.dtype, generator))

    @checked
    def cauchy_(self, median: float = 0.0, sigma: float = 1.0, *,
                generator: Any = None) -> Any:
        """Numbers of a Cauchy distribution."""
        spec = as_node(self).sig.out
        return self.copy_(numbers().cauchy_of(spec.shape, median, sigma, spec.dtype, generator))

    @checked
    def geometric_(self, p: float, *, generator: Any = None) -> Any:
        """How many trials of probability ``p`` end with the first success."""
        spec = as_node(self).sig.out
        return self.copy_(numbers().geometric_of(spec.shape, p, spec.dtype, generator))

    @checked
    def bernoulli_(self, p: Any = 0.5, *, generator: Any = None) -> Any:
        """1 with probability ``p``, a number or a tensor, else 0."""
        return self.copy_(numbers().bernoulli(self, p, generator=generator))

    @checked
    def random_(self, from_: int = 0, to: int | None = None, *,
                generator: Any = None) -> Any:
        """Integers from ``from`` to ``to``; by default all that the dtype holds exactly."""
        spec = as_node(self).sig.out
        if to is None:
            from_, to = (0, from_) if from_ else (0, numbers().largest_random(spec.dtype))
        return self.copy_(wrap(numbers().integers(spec.shape, from_, to, spec.dtype, generator)))

    @checked
    def multinomial(self, num_samples: int, replacement: bool = False, *, generator: Any = None
                    ) -> Any:
        """Indices of the last axis, drawn with the elements as probabilities."""
        return numbers().multinomial(self, num_samples, replacement, generator=generator)

    @checked
    def bernoulli(self, p: Any = None, *, generator: Any = None) -> Any:
        """1 with the elements as probabilities, else 0."""
        return numbers().bernoulli(self, p, generator=generator)
