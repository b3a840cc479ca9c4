"""A random ONNX graph while it grows: every node is run as soon as it is drawn.

So shapes and values are known, a node that the standard does not allow is dropped, and a later
node can ask for operands on which all implementations agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from tests.fuzz.onnx_peers import (
    differing,
    finished,
    is_float,
    outcome_of_onnxruntime,
    run_node,
    single_model,
    typed_value,
)

OPSETS = (8, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
FLOATS = ("float32", "float32", "float32", "float64", "float16")
INTEGERS = ("int64", "int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")
MAX_ELEMENTS = 600
MAX_RANK = 5


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


@dataclass(frozen=True)
class Step:
    """A node, and all values that it reads, those that graphs inside it capture included."""

    node: NodeProto
    reads: tuple[str, ...]


class Graph:
    """``arrays`` holds every value by name; ``inputs`` are fed, ``constants`` are initializers.

    Most graphs are ``agreed``: onnxruntime computes every node, and the same as the reference. The
    others also hold what one of the two lacks or gets wrong.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.opset = int(self.rng.choice(OPSETS))
        self.special = bool(self.rng.random() < 0.3)
        self.agreed = bool(self.rng.random() < 0.85)
        self.arrays: dict[str, np.ndarray] = {}
        self.exact: set[str] = set()
        self.inputs: list[str] = []
        self.constants: list[str] = []
        self.steps: list[Step] = []
        self.last: set[str] = set()  # results of data-dependent size, which no node reads

    # Draws

    def int(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return int(self.rng.integers(low, high, endpoint=True))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def one_of(self, items: Sequence[Any]) -> Any:
        return items[self.int(0, len(items) - 1)]

    def uniform(self, low: float, high: float) -> float:
        """A number that is short in every float format."""
        return round(float(self.rng.uniform(low, high)) * 8) / 8

    def size(self) -> int:
        sizes, shares = [0, 1, 2, 3, 4, 5, 7], [0.04, 0.2, 0.26, 0.2, 0.15, 0.1, 0.05]
        return int(self.rng.choice(sizes, p=shares))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        if rank is None:
            rank = int(self.rng.choice(6, p=[0.08, 0.2, 0.3, 0.22, 0.15, 0.05]))
        while True:
            shape = tuple(self.size() for _ in range(rank))
            if np.prod(shape, dtype=int) <= MAX_ELEMENTS:
                return shape

    def data(self, dtype: str, shape: Sequence[int], *, tame: bool = False) -> np.ndarray:
        """Random elements; some of them extreme where the graph is ``special``."""
        kind, size = numpy_dtype(dtype), tuple(shape)
        if dtype == "bool":
            return self.rng.random(size) < 0.5
        if kind.kind in "iu":
            low = 0 if kind.kind == "u" else -9
            values = self.rng.integers(low, 10, size).astype(kind)
            limits = np.iinfo(kind)
            extremes = np.array([limits.min, limits.max, limits.max - 1, 0, 1], kind)
        else:
            spread = self.one_of([1.0, 1.0, 4.0, 30.0])
            values = (self.rng.standard_normal(size) * spread).astype(kind)
            values = np.where(self.rng.random(size) < 0.1, np.round(values), values).astype(kind)
            # Larger ones overflow in sums, or not, as the order of their terms decides.
            tiny, huge = ml_dtypes.finfo(kind).tiny, float(ml_dtypes.finfo(kind).max) ** 0.5 / 64
            extremes = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, huge], kind)
        if self.special and not tame:
            mask = self.rng.random(size) < 0.15
            values = np.where(mask, self.rng.choice(extremes, size), values).astype(kind)
        return values

    # Values

    def new(self, array: np.ndarray, *, constant: bool | None = None) -> str:
        """A graph input, or an initializer, that holds ``array``."""
        array = np.asarray(array)
        constant = self.chance(0.3) if constant is None else constant
        name = f"{'c' if constant else 'x'}{len(self.arrays)}"
        (self.constants if constant else self.inputs).append(name)
        self.arrays[name] = array
        self.exact.add(name)
        return name

    def ints(self, values: Any) -> str:
        """A constant int64 operand such as axes."""
        return self.new(np.asarray(values, np.int64), constant=True)

    def fresh(self, dtype: str, shape: Sequence[int], **options: Any) -> str:
        return self.new(self.data(dtype, shape, **options))

    def pick(
        self,
        dtypes: Sequence[str],
        fits: Callable[[np.ndarray], bool] = lambda _: True,
        *,
        rank: int | None = None,
        exact: bool = False,
    ) -> str:
        """A value of one of the dtypes, mostly the result of a recent node, else a new one."""
        names = [
            n for n, a in self.arrays.items()
            if a.dtype.name in dtypes and (rank is None or a.ndim == rank) and fits(a)
            and (not exact or n in self.exact) and n not in self.last
            and n not in self.constants
        ]
        if names and self.chance(0.85):
            return names[-1] if self.chance(0.6) else self.one_of(names)
        for _ in range(60):
            array = self.data(self.one_of(list(dtypes)), self.shape(rank))
            if fits(array):
                return self.new(array)
        raise LookupError("no operand fits")

    def array(self, name: str) -> np.ndarray:
        return self.arrays[name]

    def broadcasting(self, name: str, dtype: str | None = None) -> str:
        """An operand that broadcasts with ``name``: a value of its shape, or a new one."""
        array = self.array(name)
        dtype = dtype or array.dtype.name
        same = [n for n, a in self.arrays.items()
                if a.dtype.name == dtype and a.shape == array.shape and n not in self.last]
        if same and self.chance(0.4):
            return self.one_of(same)
        shape = [1 if self.chance(0.25) else d for d in array.shape]
        return self.fresh(dtype, shape[self.int(0, len(shape)):] if self.chance(0.4) else shape)

    # Nodes

    def add(
        self, op: str, inputs: Sequence[str], outputs: int = 1, *, exact: bool = False,
        domain: str = "", reads: Sequence[str] = (), **attrs: Any
    ) -> list[str] | None:
        """The names of the results; ``None`` where the reference cannot compute the node.

        ``reads`` are the values that graphs inside the node capture.
        """
        names = [f"v{len(self.steps)}_{i}" for i in range(outputs)]
        attrs = {k: v for k, v in attrs.items() if v != []}  # of an empty list ONNX knows no type
        node = helper.make_node(op, list(inputs), names, domain=domain, name=names[0], **attrs)
        operands = [n for n in dict.fromkeys((*inputs, *reads)) if n]
        arrays = run_node(node, {n: self.arrays[n] for n in operands}, self.opset)
        if arrays is None or any(a.ndim > 6 or a.size > 4 * MAX_ELEMENTS for a in arrays):
            return None
        if self.agreed and not self._is_agreed(node, operands, arrays):
            return None
        certain = all(n in self.exact for n in operands)
        self.steps.append(Step(node, tuple(operands)))
        for name, array in zip(names, arrays, strict=True):
            self.arrays[name] = array
            # Sums of whole numbers are exact, and so are comparisons of what is exact.
            if certain and (exact or not is_float(array)):
                self.exact.add(name)
        return names

    def _is_agreed(self, node: NodeProto, reads: list[str], arrays: list[np.ndarray]) -> bool:
        feeds = {n: self.arrays[n] for n in reads}
        peer = outcome_of_onnxruntime(single_model(node, feeds, self.opset, arrays), feeds).arrays
        return peer is not None and not any(map(differing, peer, arrays))

    def model(self, outputs: Sequence[str]) -> ModelProto:
        """What leads to ``outputs``; unused inputs and nodes are left out."""
        needed, kept = set(outputs), []
        for step in reversed(self.steps):
            if needed & set(step.node.output):
                kept.append(step.node)
                needed |= set(step.reads)
        nodes = kept[::-1]
        graph = helper.make_graph(
            nodes, "random",
            [typed_value(n, self.arrays[n]) for n in self.inputs if n in needed],
            [typed_value(n, self.arrays[n]) for n in outputs],
            [numpy_helper.from_array(self.arrays[n], n) for n in self.constants if n in needed],
        )
        return finished(graph, self.opset)
