"""Random expressions over integers at the ends of their types, with their values by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.ir.text.values import SCALAR_SUFFIXES

WIDTHS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
SIZE = 40  # elements: more than a vector of any of them, and a rest

Value = np.ndarray


def extremes(dtype: str) -> list[int]:
    """The numbers at which integers of a type overflow, and some between."""
    info = np.iinfo(dtype)
    near = {0, 1, 2, 3, 7, info.max, info.max - 1, info.max // 2, info.max // 2 + 1, info.max // 3}
    if info.min < 0:
        near |= {-1, -2, -7, info.min, info.min + 1, info.min // 2, info.min // 2 - 1}
    return sorted(near)


def extreme_array(dtype: str, rng: np.random.Generator) -> Value:
    """Numbers of a type, most of them at its ends."""
    ends = rng.choice(np.array(extremes(dtype), dtype), SIZE)
    info = np.iinfo(dtype)
    anywhere = rng.integers(info.min, info.max, SIZE, dtype, endpoint=True)
    return np.where(rng.random(SIZE) < 0.8, ends, anywhere).astype(dtype)


def _truncated(a: Value, b: Value) -> Value:
    down = np.floor_divide(a, b)
    if a.dtype.kind == "u":
        return down
    is_up = ((a < 0) != (b < 0)) & (b != 0) & (down * b != a)
    return (down + is_up).astype(a.dtype)


def _absolute(a: Value) -> Value:
    return np.where(a < 0, (0 - a).astype(a.dtype), a).astype(a.dtype)


BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply,
    "floor_divide": np.floor_divide, "divide": _truncated, "trunc_divide": _truncated,
    "floor_mod": np.remainder, "mod": np.fmod, "maximum": np.maximum, "minimum": np.minimum,
    "left_shift": np.left_shift, "right_shift": np.right_shift,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor,
}
UNARY: dict[str, Callable[[Value], Value]] = {
    "negative": np.negative, "abs": _absolute, "sign": np.sign, "bitwise_not": np.invert,
}
COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "equal": np.equal, "not_equal": np.not_equal,
}
_FREQUENT = ("add", "subtract", "multiply", "maximum", "minimum")


@dataclass(frozen=True)
class Expression:
    """Text of the language, the value that NumPy gives, and whether it is a constant."""

    text: str
    value: Value


class Generator:
    """Expressions over inputs ``%x0``, ``%x1``, … of one width and constants."""

    def __init__(self, rng: np.random.Generator, inputs: list[Value]) -> None:
        self.rng = rng
        self.inputs = inputs
        self.dtype = inputs[0].dtype

    def integer(self, depth: int) -> Expression:
        """An integer of the width of the inputs."""
        if depth == 0 or self.rng.random() < 0.1:
            return self._leaf()
        kind = self.rng.random()
        if kind < 0.1:
            condition, a, b = self.condition(depth - 1), self.integer(depth - 1), self._leaf()
            return Expression(f"where({condition.text}, {a.text}, {b.text})",
                              np.where(condition.value, a.value, b.value))
        if kind < 0.2:
            name = str(self.rng.choice(list(UNARY)))
            a = self.integer(depth - 1)
            return Expression(f"{name}({a.text})", UNARY[name](a.value).astype(self.dtype))
        if kind < 0.25:
            return self._converted(self.integer(depth - 1))
        names = _FREQUENT if self.rng.random() < 0.6 else tuple(BINARY)
        name = str(self.rng.choice(names))
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        return Expression(f"{name}({a.text}, {b.text})",
                          np.asarray(BINARY[name](a.value, b.value)).astype(self.dtype))

    def condition(self, depth: int) -> Expression:
        name = str(self.rng.choice(list(COMPARE)))
        a, b = self.integer(depth), self.integer(depth)
        return Expression(f"{name}({a.text}, {b.text})", COMPARE[name](a.value, b.value))

    def _leaf(self) -> Expression:
        if self.rng.random() < 0.35:
            number = int(self.rng.choice(np.array(extremes(self.dtype.name), self.dtype)))
            suffix = SCALAR_SUFFIXES[self.dtype.name]
            return Expression(f"{number}{suffix}", np.array(number, self.dtype))
        k = int(self.rng.integers(len(self.inputs)))
        return Expression(f"%x{k}", self.inputs[k])

    def _converted(self, a: Expression) -> Expression:
        """Through another width and back."""
        other = str(self.rng.choice(WIDTHS))
        text = f'cast(cast({a.text}, dtype="{other}"), dtype="{self.dtype.name}")'
        return Expression(text, a.value.astype(other).astype(self.dtype))


def program(rng: np.random.Generator, dtype: str, results: int, depth: int) -> tuple[
        str, list[Value], list[Value]]:
    """A program of several results, its inputs, and the results by NumPy."""
    inputs = [extreme_array(dtype, rng) for _ in range(3)]
    generator = Generator(rng, inputs)
    with np.errstate(all="ignore"):
        found = [generator.condition(depth) if rng.random() < 0.4 else generator.integer(depth)
                 for _ in range(results)]
    params = ", ".join(f"%x{k}: Tensor[({SIZE},), {dtype}]" for k in range(3))
    body = ", ".join(e.text for e in found)
    return f"def @main({params}) {{ ({body}) }}", inputs, [e.value for e in found]
