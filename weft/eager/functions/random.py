"""Random numbers from keys.

The numbers are those of Threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011). A generator holds a key. A draw takes the key and gives it the next one, so that the key
is the whole state: a compiled step updates it like a parameter, and saving it resumes the stream to
the bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from weft.eager.cell import bind, node_of
from weft.eager.dtypes import as_dtype, get_default_dtype, int64, uint64
from weft.eager.functions.elementwise import cast
from weft.eager.functions.shape import sizes_of
from weft.eager.node import Node, value_node
from weft.eager.record import as_node, field, record, wrap
from weft.op.random import threefry_key
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


class Generator:
    """A stream of random numbers; ``key`` is a tensor with its whole state."""

    # A compiled function sees all that it reads.
    _not_watched: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.key: Any = wrap(_key(seed))

    def manual_seed(self, seed: int) -> Generator:
        """Start the stream of ``seed``."""
        self._seed = seed
        bind(self.key, _key(seed))
        return self

    def initial_seed(self) -> int:
        """The seed that the stream started from."""
        return self._seed

    def get_state(self) -> Tensor:
        """The key, which ``set_state`` takes."""
        return self.key.detach()

    def set_state(self, state: Any) -> None:
        """Continue the stream from a key of ``get_state``."""
        node = as_node(state)
        if node.sig.out is not node_of(self.key).sig.out:
            raise InvalidInputError("not the state of a generator", got=repr(node.sig.out.shape))
        bind(self.key, node)

    def draw(self, op: str, *operands: Node, **attrs: Any) -> Node:
        """The numbers of a random operator, whose first operand is the key; the key moves on."""
        both = record(op, (node_of(self.key), *operands), attrs)
        bind(self.key, field(both, 0))
        return field(both, 1)


def _key(seed: int) -> Node:
    return value_node(*_array(threefry_key(seed)))


def _array(key: Any) -> tuple[np.ndarray, Any]:
    array = np.ascontiguousarray(key.data if hasattr(key, "checked_type") else key)
    return array, as_dtype(array.dtype)


default_generator = Generator(0)


def manual_seed(seed: int) -> Generator:
    """Start the stream of ``seed`` in the default generator."""
    return default_generator.manual_seed(seed)


def initial_seed() -> int:
    """The seed of the default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return default_generator.get_state()


def set_rng_state(state: Any) -> None:
    """Continue the default generator from a state."""
    default_generator.set_state(state)


def _finished(node: Node, d: Any, requires_grad: bool) -> Tensor:
    made = wrap(cast(node, d))
    return made.requires_grad_() if requires_grad else made


def _two(d: Any, first: float, second: float) -> tuple[Node, Node]:
    return as_node(float(first), d), as_node(float(second), d)


def _drawn_in(d: Any) -> Any:
    """The dtype that numbers of dtype ``d`` are drawn in."""
    return d if d in ("float32", "float64") else as_dtype("float32")


def uniform(size: tuple[int, ...], low: float, high: float, d: Any,
            generator: Generator | None) -> Node:
    """Numbers uniformly distributed from ``low`` (inclusive) to ``high``."""
    drawn = _drawn_in(d)
    source = generator or default_generator
    return cast(source.draw("random.uniform", *_two(drawn, low, high), out_shape=size), d)


def normal_node(size: tuple[int, ...], mean: float, std: float, d: Any,
                generator: Generator | None) -> Node:
    """Normally distributed numbers."""
    drawn = _drawn_in(d)
    source = generator or default_generator
    return cast(source.draw("random.normal", *_two(drawn, mean, std), out_shape=size), d)


def rand(*size: Any, generator: Generator | None = None, dtype: Any = None,
         requires_grad: bool = False) -> Tensor:
    """Numbers uniformly distributed from 0 (inclusive) to 1."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return _finished(uniform(sizes_of(size), 0.0, 1.0, d, generator), d, requires_grad)


def randn(*size: Any, generator: Generator | None = None, dtype: Any = None,
          requires_grad: bool = False) -> Tensor:
    """Normally distributed numbers of mean 0 and variance 1."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return _finished(normal_node(sizes_of(size), 0.0, 1.0, d, generator), d, requires_grad)


def normal(mean: float = 0.0, std: float = 1.0, size: Any = (), *,
           generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """Normally distributed numbers."""
    d = get_default_dtype() if dtype is None else as_dtype(dtype)
    return _finished(normal_node(sizes_of((size,)), mean, std, d, generator), d, False)


def randint(low: int, high: Any = None, size: Any = None, *, generator: Generator | None = None,
            dtype: Any = None) -> Tensor:
    """Integers from ``low`` (inclusive) to ``high``: ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    d = int64 if dtype is None else as_dtype(dtype)
    source = generator or default_generator
    node = source.draw("random.randint", out_shape=sizes_of((size,)), start=low, stop=high,
                       dtype=int64.ir)
    return _finished(node, d, False)


def randperm(n: int, *, generator: Generator | None = None) -> Tensor:
    """The integers below ``n`` in random order."""
    source = generator or default_generator
    bits = source.draw("random.threefry_generate", out_shape=(n,), dtype=uint64.ir)
    return wrap(record("argsort", (bits,), {"axis": 0}))


def bernoulli(input: Any, *, generator: Generator | None = None) -> Tensor:
    """1 with the probabilities ``input``, else 0."""
    node = as_node(input)
    source = generator or default_generator
    return _finished(source.draw("random.bernoulli", node), node.sig.out.dtype, False)


def multinomial(input: Any, num_samples: int, replacement: bool = False, *,
                generator: Generator | None = None) -> Tensor:
    """Indices of the last axis, drawn with the probabilities of ``input`` up to a factor."""
    node = as_node(input)
    if not replacement and num_samples > 1:
        raise InvalidInputError("multinomial draws with replacement",
                                help="pass replacement=True, or sort keys of randperm")
    source = generator or default_generator
    return wrap(source.draw("random.multinomial", node, num_samples=num_samples))


def rand_like(input: Any, *, dtype: Any = None) -> Tensor:
    """``rand`` of the shape and dtype of ``input``."""
    spec = as_node(input).sig.out
    return rand(spec.shape, dtype=spec.dtype if dtype is None else dtype)


def randn_like(input: Any, *, dtype: Any = None) -> Tensor:
    """``randn`` of the shape and dtype of ``input``."""
    spec = as_node(input).sig.out
    return randn(spec.shape, dtype=spec.dtype if dtype is None else dtype)
