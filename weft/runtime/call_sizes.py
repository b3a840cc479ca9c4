"""What the shapes of a call's inputs determine: symbols, shapes of outputs, memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.runtime.arena import address_of
from weft.runtime.manifest import KernelCall, Manifest, SymbolSpec, TensorSpec
from weft.runtime.sizes import evaluate, table_function
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, InvalidInputError

# The bytes that a process can address. Larger tensors cannot exist, and their sizes would wrap.
ADDRESSABLE = 1 << 47


class SizeOutOfRangeError(InvalidInputError):
    """A size outside of the range of its symbol."""


@dataclass(frozen=True, slots=True)
class CallSizes:
    """The sizes of one call.

    ``values`` are those of the inputs' symbols, as int64, at ``address``; ``table`` are the entries
    of ``Manifest.sizes``. ``inputs`` and ``outputs`` have fixed shapes. Sizes that data determines
    have the values of their bounds until the program has counted them, and ``outputs`` has one more
    entry, for the counts.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    arena_bytes: int
    table: tuple[int, ...]
    values: np.ndarray
    address: int
    symbols: Mapping[str, int]


_NO_VALUES = np.zeros(0, np.int64)


def fixed_sizes(manifest: Manifest) -> CallSizes:
    """The sizes of a program without symbols; for one with symbols those of its signature."""
    if manifest.counts and not manifest.symbols:
        return SizeSolver(manifest).solve([spec.concrete_shape for spec in manifest.inputs])
    arena_bytes = manifest.arena_bytes if isinstance(manifest.arena_bytes, int) else 0
    return CallSizes(manifest.inputs, manifest.outputs, arena_bytes, (), _NO_VALUES, 0, {})


def steps_at(manifest: Manifest, sizes: CallSizes) -> tuple[KernelCall, ...]:
    """The kernel calls at these sizes: variants are chosen, and work is in numbers."""
    if not manifest.symbols and not manifest.counts:
        return manifest.steps
    return tuple(_step_at(step, sizes) for step in manifest.steps)


def _step_at(step: KernelCall, sizes: CallSizes) -> KernelCall:
    chosen = next((v for v in step.variants if v.takes(sizes.table)), None)
    if chosen is not None:
        step = replace(step, symbol=chosen.kernel, args=chosen.args,
                       implementation=chosen.implementation, seconds=chosen.seconds)
    return replace(step, flops=evaluate(step.flops, sizes.symbols),
                   bytes_moved=evaluate(step.bytes_moved, sizes.symbols), variants=())


class SizeSolver:
    """Finds the sizes of calls of one program with symbols."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        names = [known.name for known in (*manifest.symbols, *manifest.counts)]
        self._table: Callable[[Mapping[str, int]], tuple[int, ...]] = table_function(
            manifest.sizes, names)
        self._nonnegative = table_function(manifest.nonnegative, names)

    def solve(self, shapes: Sequence[tuple[int, ...]]) -> CallSizes:
        """The sizes for these input shapes.

        Raises ``InvalidInputError`` for a wrong rank, a size beyond the range of its symbol,
        sizes that contradict each other, and sizes that need more than ``ADDRESSABLE`` bytes.
        """
        manifest = self._manifest
        if len(shapes) != len(manifest.inputs):
            raise InvalidInputError("the number of shapes differs from that of inputs",
                                    got=len(shapes), expected=manifest.signature())
        for spec, shape in zip(manifest.inputs, shapes, strict=True):
            if len(spec.shape) != len(shape):
                raise _wrong(spec, f"has rank {len(shape)}, expected {len(spec.shape)}", shape)
        symbols = {s.name: self._symbol(s, shapes[s.input]) for s in manifest.symbols}
        for spec, shape in zip(manifest.inputs, shapes, strict=True):
            self._check(spec, shape, symbols)
        if any(value >= ADDRESSABLE for value in symbols.values()):
            raise _too_large(shapes)
        values = np.array(list(symbols.values()), np.int64)
        if manifest.counts:
            symbols |= {count.name: evaluate(count.bound, symbols) for count in manifest.counts}
        outputs = tuple([self._output(spec, symbols) for spec in manifest.outputs])
        self._check_signs(symbols, shapes)
        table = _computed(self._table, symbols, shapes)
        known = {**symbols, **{f"_{n}": value for n, value in enumerate(table)}} \
            if isinstance(manifest.arena_bytes, str) else symbols
        arena_bytes = evaluate(manifest.arena_bytes, known)
        # A tensor without elements may have a size that NumPy refuses.
        needed = max([max(spec.nbytes, *spec.concrete_shape, 0) for spec in outputs], default=0)
        if arena_bytes >= ADDRESSABLE or needed >= ADDRESSABLE:
            raise _too_large(shapes, max(arena_bytes, needed))
        if arena_bytes < 0:
            raise ArtifactError("a damaged manifest", where="arena", got=f"{arena_bytes} bytes")
        inputs = tuple([TensorSpec(spec.name, spec.dtype, tuple(shape))
                        for spec, shape in zip(manifest.inputs, shapes, strict=True)])
        if manifest.counts:
            outputs += (TensorSpec("sizes", "int64", (len(manifest.counts),)),)
        return CallSizes(inputs, outputs, arena_bytes, table, values, address_of(values), symbols)

    def counted(self, sizes: CallSizes, counts: Mapping[str, int]) -> CallSizes:
        """The sizes of a call that has counted these sizes so far."""
        symbols = {**sizes.symbols, **counts}
        return replace(sizes, symbols=symbols, table=self._table(symbols))

    def _check_signs(self, symbols: Mapping[str, int], shapes: Sequence[tuple[int, ...]]) -> None:
        """Raise ``SizeOutOfRangeError`` where an intermediate would have a negative size."""
        checked = self._manifest.nonnegative
        if not checked:
            return
        values = _computed(self._nonnegative, symbols, shapes)
        for size, value in zip(checked, values, strict=True):
            if value < 0:
                raise SizeOutOfRangeError(f"the inputs are too small: {size} is {value}",
                                          expected=self._manifest.signature(),
                                          got=", ".join(map(str, shapes)))

    def _output(self, spec: TensorSpec, symbols: Mapping[str, int]) -> TensorSpec:
        """The type of an output; sizes below zero (of a window that does not fit) are refused."""
        shape = tuple([evaluate(size, symbols) for size in spec.shape])
        if any(size < 0 for size in shape):
            given = ", ".join(f"{name} = {value}" for name, value in symbols.items())
            raise SizeOutOfRangeError(
                f"the inputs are too small for output {spec.name!r}", expected=spec,
                got=f"shape {shape} for {given}")
        return TensorSpec(spec.name, spec.dtype, shape)

    def _symbol(self, symbol: SymbolSpec, shape: tuple[int, ...]) -> int:
        spec = self._manifest.inputs[symbol.input]
        value, rest = divmod(shape[symbol.axis] - symbol.offset, symbol.scale)
        if rest:
            raise _wrong(spec, f"cannot have size {shape[symbol.axis]} (axis {symbol.axis}): it is "
                               f"{spec.shape[symbol.axis]}", shape)
        if value < symbol.low or (symbol.high is not None and value > symbol.high) \
                or value % symbol.multiple:
            raise SizeOutOfRangeError(
                f"input {spec.name!r} cannot have size {shape[symbol.axis]} (axis {symbol.axis}): "
                f"{range_text(symbol)}", expected=spec, got=repr(tuple(shape)))
        return value

    def _check(self, spec: TensorSpec, shape: tuple[int, ...], symbols: Mapping[str, int]) -> None:
        for axis, (declared, size) in enumerate(zip(spec.shape, shape, strict=True)):
            if declared == size or evaluate(declared, symbols) == size:
                continue
            if isinstance(declared, int):
                raise _wrong(spec, f"has a fixed size of {declared} (axis {axis}), not {size}",
                             shape)
            raise _wrong(spec, f"cannot have size {size} (axis {axis}): {declared} is "
                               f"{evaluate(declared, symbols)}{self._source(declared)}", shape)

    def _source(self, name: str) -> str:
        """Which input determined a symbol."""
        for symbol in self._manifest.symbols:
            if symbol.name == name:
                return f" in input {self._manifest.inputs[symbol.input].name!r}"
        return ""


def _computed(table: Callable[[Mapping[str, int]], tuple[int, ...]], symbols: Mapping[str, int],
              shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return table(symbols)
    except OverflowError:
        raise _too_large(shapes) from None
    except ZeroDivisionError as error:
        raise ArtifactError("a size cannot be computed", got=f"{dict(symbols)}: {error}") from None


def range_text(symbol: SymbolSpec) -> str:
    """The range of a symbol as a sentence."""
    parts = []
    if symbol.high is not None:
        parts.append(f"from {symbol.low} to {symbol.high}")
    elif symbol.low:
        parts.append(f"{symbol.low} or more")
    if symbol.multiple > 1:
        parts.append(f"a multiple of {symbol.multiple}")
    return f"{symbol.name} is {' and '.join(parts) or '0 or more'}"


def _too_large(shapes: Sequence[tuple[int, ...]], needed: int | None = None) -> InvalidInputError:
    return InvalidInputError("inputs of these sizes need more memory than there are addresses",
                             expected=f"fewer than {ADDRESSABLE} bytes",
                             got=", ".join(map(str, shapes)) + (
                                 "" if needed is None else f": {needed} bytes"))


def _wrong(spec: TensorSpec, what: str, shape: Sequence[int]) -> InvalidInputError:
    return InvalidInputError(f"input {spec.name!r} {what}", expected=spec, got=repr(tuple(shape)))
