"""``TensorModel``: a compiled module with a name, the check of its inputs, and its batcher."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from weft.runtime.manifest import TensorSpec
from weft.serving.batcher import Arrays, Batcher
from weft.serving.limits import Limits
from weft.serving.observer import SILENT, Observer
from weft.serving.tensors import DATATYPES
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, UnsupportedModelError, WeftError

# How far results of one row may be from those of the row in a batch, of the largest value.
_ROUNDING = {"float16": 2e-2, "bfloat16": 5e-2}
_PROBED = 4  # the size of symbolic axes in the probe, where their range has it


class TensorModule(Protocol):
    """A model of the server: a ``weft.Executable``, or anything with its signature."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], /
            ) -> list[np.ndarray]: ...


@dataclass(frozen=True)
class BatchAxis:
    """Whether requests may share a batch: the symbol of the rows and their bound, or why not."""

    symbol: str | None
    most: int | None = None
    reason: str = ""


class TensorModel:
    """A module under the name and the version that clients ask for.

    ``batching`` says whether requests run in batches. ``None`` finds out: all inputs and outputs
    begin with one symbolic size, and a trial shows that each row of a result depends on its own
    row of the inputs alone.
    """

    def __init__(self, name: str, module: TensorModule, *, version: str = "1",
                 limits: Limits | None = None, batching: bool | None = None,
                 platform: str = "weft", observer: Observer = SILENT) -> None:
        _check_servable(name, module)
        self.name = name
        self.version = version
        self.module = module
        self.platform = platform
        limits = limits or Limits()
        self.batch_axis = (BatchAxis(None, reason="batching is off")
                           if batching is False or limits.max_batch == 1
                           else batch_axis(module, trust=batching is True))
        self._limits = limits if self.batch_axis.most is None else _at_most(
            limits, self.batch_axis.most)
        self._observer = observer
        self.batcher = self._new_batcher()

    def observe(self, observer: Observer) -> None:
        """Report to ``observer`` from now on."""
        self._observer = observer
        self.batcher = self._new_batcher()

    def _new_batcher(self) -> Batcher:
        return Batcher(self._run, batched=self.batch_axis.symbol is not None,
                       limits=self._limits, name=self.name, observer=self._observer,
                       workers=getattr(self.module, "replicas", 1))

    async def infer(self, feeds: Mapping[str, np.ndarray]) -> Arrays:
        """The outputs in order; ``InvalidInputError`` for feeds that do not fit."""
        return await self.batcher.submit(self.check(feeds))

    async def close(self) -> None:
        """Answer what waits, and end the worker."""
        await self.batcher.close()

    def check(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """The inputs in order, of the right names, dtypes and shapes."""
        names = [spec.name for spec in self.module.inputs]
        for kind, wrong in (("unknown", [n for n in feeds if n not in names]),
                            ("missing", [n for n in names if n not in feeds])):
            if wrong:
                raise InvalidInputError(f"{kind} inputs: {', '.join(map(repr, wrong))}",
                                        expected=", ".join(map(str, self.module.inputs)))
        sizes: dict[str, tuple[int, str]] = {}
        for spec in self.module.inputs:
            _check_array(spec, feeds[spec.name], sizes)
        return [feeds[name] for name in names]

    def _run(self, arrays: Arrays) -> Arrays:
        names = [spec.name for spec in self.module.inputs]
        return self.module.run(None, dict(zip(names, arrays, strict=True)))


def _check_servable(name: str, module: TensorModule) -> None:
    strange = [spec for spec in (*module.inputs, *module.outputs) if spec.dtype not in DATATYPES]
    if strange:
        raise UnsupportedModelError(
            "the protocol has no such datatype", where=name, expected=", ".join(DATATYPES),
            got=", ".join(map(str, strange)), help="cast the tensor in the model")
    if not module.outputs:
        raise UnsupportedModelError("the model has no tensor to return", where=name)
    state = getattr(module, "state", None)
    if state:
        raise UnsupportedModelError(
            "a model that keeps state would mix its clients", where=name, got=", ".join(state),
            help="compile it without state=, so that the state is an input and an output")


def _check_array(spec: TensorSpec, array: np.ndarray, sizes: dict[str, tuple[int, str]]) -> None:
    """``InvalidInputError`` unless ``array`` fits; ``sizes`` are those of symbols met so far."""
    got = f"Tensor[{array.shape}, {array.dtype}]"
    if array.dtype != spec.numpy_dtype:
        raise InvalidInputError(f"input {spec.name!r} has the wrong datatype", got=got,
                                expected=f"{spec} ({DATATYPES[spec.dtype]})")
    fits = len(array.shape) == len(spec.shape) and all(
        size == want for size, want in zip(array.shape, spec.shape, strict=True)
        if isinstance(want, int))
    if not fits:
        raise InvalidInputError(f"input {spec.name!r} has the wrong shape", expected=spec, got=got)
    for size, want in zip(array.shape, spec.shape, strict=True):
        if isinstance(want, str):
            before, where = sizes.setdefault(want, (size, spec.name))
            if before != size:
                raise InvalidInputError(
                    f"the sizes of {want!r} differ", got=f"{before} in {where!r}, {size} in "
                    f"{spec.name!r}")


def _at_most(limits: Limits, most: int) -> Limits:
    from dataclasses import replace

    return replace(limits, max_batch=max(1, min(limits.max_batch, most)))


def batch_axis(module: TensorModule, *, trust: bool = False) -> BatchAxis:
    """The axis along which requests may be joined; ``trust`` skips the trial."""
    specs = (*module.inputs, *module.outputs)
    firsts = {spec.shape[0] if spec.shape else None for spec in specs}
    symbol = next(iter(firsts))
    if len(firsts) > 1 or not isinstance(symbol, str) or not symbol.isidentifier() \
            or not module.inputs:
        return BatchAxis(None, reason="inputs and outputs do not begin with one symbolic size")
    word = re.compile(rf"\b{re.escape(symbol)}\b")
    if any(isinstance(size, str) and word.search(size) for spec in specs
           for size in spec.shape[1:]):
        return BatchAxis(None, reason=f"the size {symbol!r} is that of another axis, too")
    if getattr(module, "launcher", module) is None:
        return BatchAxis(None, reason="each batch size would compile a program of its own")
    ranges = {s.name: s for s in getattr(getattr(module, "manifest", None), "symbols", ())}
    own = ranges.get(symbol)
    if own is not None and (own.low > 1 or own.multiple != 1):
        return BatchAxis(None, reason=f"the size {symbol!r} is never 1")
    if not trust:
        try:
            independent = _rows_are_independent(module, symbol, ranges)
        except WeftError as error:
            return BatchAxis(None, reason=f"the trial of a batch failed: {error.what}")
        if not independent:
            return BatchAxis(None, reason="a row of a result depends on other rows")
    return BatchAxis(symbol, None if own is None else own.high)


def _rows_are_independent(module: TensorModule, symbol: str, ranges: Mapping[str, Any]) -> bool:
    """Whether two rows give in one batch what each gives alone."""
    rng = np.random.default_rng(0)
    both = {spec.name: _probe(spec, symbol, ranges, rng) for spec in module.inputs}
    joined = module.run(None, both)
    for row in range(2):
        alone = module.run(None, {name: array[row:row + 1].copy()
                                  for name, array in both.items()})
        for spec, one, many in zip(module.outputs, alone, joined, strict=True):
            if len(many) != 2 or not _close(np.asarray(one)[0], np.asarray(many)[row], spec.dtype):
                return False
    return True


def _probe(spec: TensorSpec, symbol: str, ranges: Mapping[str, Any], rng: np.random.Generator
           ) -> np.ndarray:
    shape = [2 if size == symbol else size if isinstance(size, int)
             else _size(ranges.get(size)) for size in spec.shape]
    if spec.numpy_dtype.kind in "biu":
        return rng.integers(0, 2, shape).astype(spec.numpy_dtype)
    values = rng.standard_normal(shape)
    values[1:] *= 3.0  # rows of different statistics
    return values.astype(spec.numpy_dtype)


def _size(symbol: Any) -> int:
    if symbol is None:
        return _PROBED
    size = max(_PROBED, symbol.low)
    size += -size % symbol.multiple
    return size if symbol.high is None else min(size, symbol.high)


def _close(one: np.ndarray, other: np.ndarray, dtype: str) -> bool:
    if one.dtype.kind in "biu":
        return bool(np.array_equal(one, other))
    one, other = one.astype(np.float64), other.astype(np.float64)
    scale = float(np.max(np.abs(other), initial=0.0, where=np.isfinite(other)))
    return bool(np.allclose(one, other, rtol=0.0, atol=_ROUNDING.get(dtype, 1e-4) * scale,
                            equal_nan=True))
