"""Random numbers from keys.

The numbers are those of Threefry-2x32 (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011). A generator holds a key. A draw takes the key and gives it the next one, so that the key
is the whole state: a compiled step updates it like a parameter, and saving it resumes the stream to
the bit.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import ml_dtypes
import numpy as np

from weft.eager.cell import Cell, bind, node_of
from weft.eager.checks import weights
from weft.eager.device import CPU, get_default_device
from weft.eager.dtypes import as_dtype, get_default_dtype, int64, uint64
from weft.eager.functions.elementwise import cast
from weft.eager.functions.shape import sizes_of
from weft.eager.node import Node, value_node
from weft.eager.placement import moved
from weft.eager.record import as_node, field, record, wrap
from weft.eager.signature import factory, public
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
        return self.key.clone()

    def set_state(self, state: Any) -> None:
        """Continue the stream from a key of ``get_state``."""
        node = as_node(state)
        node = moved(node, CPU)
        if node.sig.out is not _key(0).sig.out:
            raise InvalidInputError("not the state of a generator", got=repr(node.sig.out.shape))
        bind(self.key, node)

    def draw(self, op: str, *operands: Node, **attrs: Any) -> Node:
        """The numbers of a random operator, whose first operand is the key; the key moves on.

        They are drawn on the device of the operands, or else on the default device, where the key
        stays: the numbers are the same on every device.
        """
        places = [node.sig.out.device for node in operands if node.sig.out.device is not CPU]
        key = moved(node_of(self.key), places[0] if places else get_default_device())
        both = record(op, (key, *operands), attrs)
        bind(self.key, field(both, 0))
        return field(both, 1)


def _key(seed: int) -> Node:
    return value_node(*_array(threefry_key(seed)))


def _array(key: Any) -> tuple[np.ndarray, Any]:
    array = np.ascontiguousarray(key.data if hasattr(key, "checked_type") else key)
    return array, as_dtype(array.dtype)


default_generator = Generator(0)


class _OfThread(threading.local):
    own: Generator | None = None


_OF_THREAD = _OfThread()


def current_generator() -> Generator:
    """The generator of draws that name none: the thread's own, or ``default_generator``."""
    return _OF_THREAD.own or default_generator


@contextlib.contextmanager
def own_generator(state: Tensor) -> Iterator[None]:
    """Give this thread a generator of its own, which starts from ``state``.

    A rank that is a thread must draw what it would draw as a process, where no other rank moves
    the key between its draws.
    """
    before, own = _OF_THREAD.own, Generator()
    own.set_state(state)
    _OF_THREAD.own = own
    try:
        yield
    finally:
        _OF_THREAD.own = before


def manual_seed(seed: int) -> Generator:
    """Start the stream of ``seed`` in the default generator."""
    return current_generator().manual_seed(seed)


def initial_seed() -> int:
    """The seed of the default generator."""
    return current_generator().initial_seed()


def get_rng_state() -> Tensor:
    """The state of the default generator."""
    return current_generator().get_state()


def set_rng_state(state: Any) -> None:
    """Continue the default generator from a state."""
    current_generator().set_state(state)


def _float(dtype: Any) -> Any:
    return get_default_dtype() if dtype is None else as_dtype(dtype)


def _two(d: Any, first: float, second: float) -> tuple[Node, Node]:
    return as_node(float(first), d), as_node(float(second), d)


def _drawn_in(d: Any) -> Any:
    """The dtype that numbers of dtype ``d`` are drawn in."""
    return d if d in ("float32", "float64") else as_dtype("float32")


def uniform(size: tuple[int, ...], low: float, high: float, d: Any,
            generator: Generator | None) -> Node:
    """Numbers uniformly distributed from ``low`` (inclusive) to ``high``."""
    drawn = _drawn_in(d)
    source = generator or current_generator()
    return cast(source.draw("random.uniform", *_two(drawn, low, high), out_shape=size), d)


def normal_node(size: tuple[int, ...], mean: float, std: float, d: Any,
                generator: Generator | None) -> Node:
    """Normally distributed numbers."""
    drawn = _drawn_in(d)
    source = generator or current_generator()
    return cast(source.draw("random.normal", *_two(drawn, mean, std), out_shape=size), d)


def integers(size: tuple[int, ...], low: int, high: int, d: Any, generator: Generator | None
             ) -> Node:
    """Integers from ``low`` (inclusive) to ``high``."""
    if low >= high:
        raise InvalidInputError("random integers of an empty range", got=f"{low} to {high}")
    source = generator or current_generator()
    node = source.draw("random.randint", out_shape=size, start=int(low), stop=int(high),
                       dtype=int64.ir)
    return cast(node, d)


@factory
def rand(*size: Any, generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """Numbers uniformly distributed from 0 (inclusive) to 1."""
    return wrap(uniform(sizes_of(size), 0.0, 1.0, _float(dtype), generator))


@factory
def randn(*size: Any, generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """Normally distributed numbers of mean 0 and variance 1."""
    return wrap(normal_node(sizes_of(size), 0.0, 1.0, _float(dtype), generator))


@factory
def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *,
           generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """Normally distributed numbers; ``mean`` and ``std`` are numbers, or tensors that broadcast."""
    given = [v for v in (mean, std) if isinstance(v, Cell)]
    if not given:
        return wrap(normal_node(sizes_of((size or (),)), mean, std, _float(dtype), generator))
    specs = [as_node(v).sig.out for v in given]
    shape = np.broadcast_shapes(*[s.shape for s in specs])
    drawn = wrap(normal_node(shape, 0.0, 1.0, specs[0].dtype, generator))
    return drawn * std + mean


@factory
def randint(low: int, high: Any = None, size: Any = None, *, generator: Generator | None = None,
            dtype: Any = None) -> Tensor:
    """Integers from ``low`` (inclusive) to ``high``: ``randint(high, size)`` starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    d = int64 if dtype is None else as_dtype(dtype)
    return wrap(integers(sizes_of((size,)), low, high, d, generator))


@factory
def randperm(n: int, *, generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """The integers below ``n`` in random order."""
    source = generator or current_generator()
    bits = source.draw("random.threefry_generate", out_shape=(n,), dtype=uint64.ir)
    order = record("argsort", (bits,), {"axis": 0})
    return wrap(order if dtype is None else cast(order, as_dtype(dtype)))


@public
def bernoulli(input: Any, p: Any = None, *, generator: Generator | None = None) -> Tensor:
    """1 with the probabilities ``input`` (or ``p`` for all of its elements), else 0."""
    node = as_node(input)
    d = node.sig.out.dtype
    drawn = _drawn_in(d)
    odds = cast(node, drawn) if p is None else as_node(full_of(node.sig.out.shape, p, drawn))
    return wrap(cast((generator or current_generator()).draw("random.bernoulli", odds), d))


def full_of(shape: tuple[int, ...], value: Any, d: Any) -> Any:
    """A number or a tensor in a shape and dtype."""
    node = cast(as_node(value, d), d)
    return wrap(record("broadcast_to", (node,), {"shape": shape}))


@public
def multinomial(input: Any, num_samples: int, replacement: bool = False, *,
                generator: Generator | None = None) -> Tensor:
    """Indices of the last axis, drawn with the probabilities of ``input`` up to a factor.

    Without replacement they are those of the largest of weight / exponential number: the times of
    an exponential race ("Weighted random sampling with a reservoir", Efraimidis and Spirakis 2006).
    """
    node = as_node(input)
    if node.sig.out.dtype.itemsize == 2:
        node = cast(node, as_dtype("float32"))
    source = generator or current_generator()
    if replacement or num_samples == 1:
        drawn = source.draw("random.multinomial", node, num_samples=num_samples)
        drawn.args[0].check = weights(node, "multinomial")
        return wrap(drawn)
    if num_samples > node.sig.out.shape[-1]:
        raise InvalidInputError("multinomial cannot draw so many without replacement",
                                got=str(num_samples), expected=f"at most {node.sig.out.shape[-1]}")
    with node.sig.out.device:
        arrival = exponential_of(node.sig.out.shape, 1.0, node.sig.out.dtype, source)
    speed = record("divide", (node, as_node(arrival)), {})
    return wrap(record("topk", (speed,), {"axis": -1, "k": int(num_samples)}))[1]


def exponential_of(shape: tuple[int, ...], rate: float, d: Any, generator: Generator | None
                   ) -> Any:
    """Exponentially distributed numbers, above 0."""
    drawn = wrap(uniform(shape, 0.0, 1.0, _drawn_in(d), generator))
    return ((1.0 - drawn).log() * (-1.0 / rate)).clamp(min=_TINY).to(d)


_TINY = float(np.finfo(np.float32).tiny)


def geometric_of(shape: tuple[int, ...], p: float, d: Any, generator: Generator | None) -> Any:
    """How many trials of probability ``p`` end with the first success, from 1 on."""
    if not 0 < p < 1:
        raise InvalidInputError("geometric takes a probability between 0 and 1", got=repr(p))
    trials = exponential_of(shape, -math.log1p(-p), as_dtype("float32"), generator)
    return trials.ceil().to(d)


def cauchy_of(shape: tuple[int, ...], median: float, sigma: float, d: Any,
              generator: Generator | None) -> Any:
    """Numbers of a Cauchy distribution."""
    drawn = wrap(uniform(shape, -0.5, 0.5, _drawn_in(d), generator))
    return ((drawn * math.pi).tan() * sigma + median).to(d)


@public
def poisson(input: Any, generator: Generator | None = None) -> Tensor:
    """Poisson distributed numbers whose rates are the elements, at most some 700.

    The arrivals of rate 1 up to each rate are counted. The tensor is looked at.
    """
    rates = wrap(as_node(input))
    top = float(rates.max().item()) if rates.numel() else 0.0
    if top > _LARGEST_RATE or (rates.numel() and float(rates.min().item()) < 0):
        raise InvalidInputError("poisson: a rate is out of range", got=str(top),
                                expected=f"0 to {_LARGEST_RATE}")
    count = int(top + 10 * math.sqrt(top) + 20)
    with rates.device:
        gaps = exponential_of((count, *rates.shape), 1.0, as_dtype("float32"), generator)
    return (gaps.cumsum(0) <= rates).sum(0).to(rates.dtype)


_LARGEST_RATE = 700.0


@factory
def rand_like(input: Any, *, generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """``rand`` of the shape and dtype of ``input``."""
    spec = as_node(input).sig.out
    return rand(spec.shape, generator=generator, dtype=spec.dtype if dtype is None else dtype)


@factory
def randn_like(input: Any, *, generator: Generator | None = None, dtype: Any = None) -> Tensor:
    """``randn`` of the shape and dtype of ``input``."""
    spec = as_node(input).sig.out
    return randn(spec.shape, generator=generator, dtype=spec.dtype if dtype is None else dtype)


@factory
def randint_like(input: Any, low: int, high: Any = None, *, generator: Generator | None = None,
                 dtype: Any = None) -> Tensor:
    """``randint`` of the shape and dtype of ``input``."""
    spec = as_node(input).sig.out
    first, last = (0, low) if high is None else (low, high)
    d = spec.dtype if dtype is None else as_dtype(dtype)
    return wrap(integers(spec.shape, int(first), int(last), d, generator))


def largest_random(d: Any) -> int:
    """The number below which ``random_`` draws."""
    if d.is_floating_point:
        return 1 << (ml_dtypes.finfo(d.dtype).nmant + 1)
    return 2 if d.rank == 0 else min((1 << (d.ir.bits - d.is_signed)), (1 << 63) - 1)
