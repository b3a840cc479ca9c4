"""StableHLO programs with what they compute, by NumPy. They are written as JAX prints them."""

# ruff: noqa: E501 - lines of MLIR are as long as JAX prints them

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

_NUMBERS = np.random.default_rng(0)


def f32(*shape: int, low: float = -2, high: float = 2) -> np.ndarray:
    return _NUMBERS.uniform(low, high, shape).astype(np.float32)


@dataclass(frozen=True)
class Program:
    """``main`` with parameters %a, %b, ... of the inputs' types, and the function it is."""

    name: str
    result: str
    body: str
    inputs: tuple[np.ndarray, ...]
    meant: Callable[..., Any]
    functions: str = ""
    tolerance: float = 1e-5

    @property
    def text(self) -> str:
        names = [f"%{letter}: {tensor(x)}" for letter, x in zip("abcdef", self.inputs,
                                                               strict=False)]
        return (f"module @example {{\n  func.func public @main({', '.join(names)}) -> "
                f"({self.result}) {{\n{self.body}\n  }}\n{self.functions}}}\n")


_ELEMENTS = {"float32": "f32", "float64": "f64", "int32": "i32", "int64": "i64", "bool": "i1",
             "uint8": "ui8", "uint32": "ui32", "int8": "i8"}


def tensor(x: np.ndarray) -> str:
    return f"tensor<{''.join(f'{n}x' for n in x.shape)}{_ELEMENTS[x.dtype.name]}>"


X, Y = f32(3, 4), f32(3, 4)
N = np.array([[3, -7, 5], [-2, 9, 0]], np.int32)
J = np.array([[2, 2, -3], [1, 0, 4]], np.int32)
TIES = np.array([[1.0, 3.0, 3.0, -2.0], [0.0, -1.0, 5.0, 5.0]], np.float32)
WITH_NAN = np.array([[1.0, np.nan, 3.0, -2.0], [0.0, -1.0, 5.0, 5.0]], np.float32)
IMAGE = f32(1, 5, 6, 2)


def _binary(name: str, meant: Callable[..., Any], a: np.ndarray, b: np.ndarray) -> Program:
    return Program(name, tensor(a), f"    %0 = stablehlo.{name} %a, %b : {tensor(a)}\n"
                   f"    return %0 : {tensor(a)}", (a, b), meant)


def _unary(name: str, meant: Callable[..., Any], a: np.ndarray) -> Program:
    return Program(name, tensor(a), f"    %0 = stablehlo.{name} %a : {tensor(a)}\n"
                   f"    return %0 : {tensor(a)}", (a,), meant)


def _truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, -1, np.trunc(a / safe)).astype(np.int32)


def _argmax(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return x.max(1), np.argmax(x, 1).astype(np.int32)


_ARGMAX = """    %0 = stablehlo.iota dim = 1 : tensor<2x4xi32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1:2 = stablehlo.reduce(%a init: %cst), (%0 init: %c) across dimensions = [1] : (tensor<2x4xf32>, tensor<2x4xi32>, tensor<f32>, tensor<i32>) -> (tensor<2xf32>, tensor<2xi32>)
     reducer(%arg1: tensor<f32>, %arg3: tensor<f32>) (%arg2: tensor<i32>, %arg4: tensor<i32>)  {
      %2 = stablehlo.compare GT, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.or %2, %3 : tensor<i1>
      %5 = stablehlo.compare EQ, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %6 = stablehlo.compare LT, %arg2, %arg4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %7 = stablehlo.and %5, %6 : tensor<i1>
      %8 = stablehlo.or %4, %7 : tensor<i1>
      %9 = stablehlo.select %4, %arg1, %arg3 : tensor<i1>, tensor<f32>
      %10 = stablehlo.select %8, %arg2, %arg4 : tensor<i1>, tensor<i32>
      stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
    }
    return %1#0, %1#1 : tensor<2xf32>, tensor<2xi32>"""


def _sort(comparator: str, operands: str, types: str, results: int) -> str:
    names = ", ".join(f"%s#{n}" for n in range(results)) if results > 1 else "%s"
    left = f"%s:{results}" if results > 1 else "%s"
    given = types if results == 1 else f"({types})"
    return (f'    {left} = "stablehlo.sort"({operands}) <{{dimension = 1 : i64, is_stable = true}}>'
            f" ({{\n{comparator}\n    }}) : ({types}) -> {given}\n    return {names} : {types}")


_PLAIN_ORDER = """    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.compare LT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>"""
_BY_SECOND = """    ^bb0(%p: tensor<f32>, %q: tensor<f32>, %r: tensor<f32>, %t: tensor<f32>):
      %1 = stablehlo.compare GT, %r, %t, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %2 = stablehlo.compare EQ, %r, %t, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %3 = stablehlo.compare LT, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %4 = stablehlo.and %2, %3 : tensor<i1>
      %5 = stablehlo.or %1, %4 : tensor<i1>
      stablehlo.return %5 : tensor<i1>"""
_BY_SIZE = """    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.abs %p : tensor<f32>
      %2 = stablehlo.abs %q : tensor<f32>
      %3 = stablehlo.compare LT, %1, %2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %3 : tensor<i1>"""


def _lexicographic(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.stack([np.lexsort((p, -q)) for p, q in zip(a, b, strict=True)])
    return np.take_along_axis(a, order, 1), np.take_along_axis(b, order, 1)


def _by_size(a: np.ndarray) -> np.ndarray:
    return np.take_along_axis(a, np.argsort(np.abs(a), 1, kind="stable"), 1)


def _scattered(x: np.ndarray, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    result = x.copy()
    for place, row in zip(at, rows, strict=True):
        if 0 <= place < len(x):
            result[place] += row
    return result


def _window_max(x: np.ndarray) -> np.ndarray:
    wide = np.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0)), constant_values=-np.inf)
    return np.maximum(wide[:, 0:5:2], wide[:, 1:6:2])


def _convolution(x: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Images NHWC, a kernel HWIO, and a result CHWN; steps of 2 down the image."""
    wide = np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    out = np.zeros((k.shape[3], 3, 5, x.shape[0]))
    for i in range(3):
        for j in range(5):
            part = wide[:, 2 * i:2 * i + 3, j:j + 2]
            out[:, i, j] = np.einsum("bhwc,hwco->ob", part, k)
    return out


def _loop(x: np.ndarray) -> np.ndarray:
    for number in range(7):
        x = x * np.float32(0.5) + np.float32(number)
    return x


_LOOP = """    %c = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.while(%i = %c, %x = %a) : tensor<i32>, tensor<3x4xf32>
    cond {
      %n = stablehlo.constant dense<ROUNDS> : tensor<i32>
      %1 = stablehlo.compare LT, %i, %n, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %1 = func.call @step(%i, %x) : (tensor<i32>, tensor<3x4xf32>) -> tensor<3x4xf32>
      %one = stablehlo.constant dense<1> : tensor<i32>
      %2 = stablehlo.add %i, %one : tensor<i32>
      stablehlo.return %2, %1 : tensor<i32>, tensor<3x4xf32>
    }
    return %0#1 : tensor<3x4xf32>"""
_STEP = """  func.func private @step(%i: tensor<i32>, %x: tensor<3x4xf32>) -> tensor<3x4xf32> {
    %half = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %half, dims = [] : (tensor<f32>) -> tensor<3x4xf32>
    %1 = stablehlo.multiply %x, %0 : tensor<3x4xf32>
    %2 = stablehlo.convert %i : (tensor<i32>) -> tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<3x4xf32>
    %4 = stablehlo.add %1, %3 : tensor<3x4xf32>
    return %4 : tensor<3x4xf32>
  }
"""

PROGRAMS: tuple[Program, ...] = (
    _binary("add", np.add, X, Y), _binary("atan2", np.arctan2, X, Y),
    _binary("maximum", np.maximum, X, Y), _binary("divide", _truncated, N, J),
    _binary("remainder", lambda a, b: np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))),
            N, J),
    _binary("shift_right_logical",
            lambda a, b: np.where((b < 0) | (b > 31), 0, a.view(np.uint32) >> (b & 31).view(
                np.uint32)).astype(np.uint32).view(np.int32), N, J),
    _binary("power", np.power, np.abs(X), Y),
    _unary("cbrt", np.cbrt, X), _unary("sign", np.sign, X), _unary("popcnt", np.bitwise_count,
                                                                   np.abs(N)),
    _unary("count_leading_zeros", lambda a: np.array(
        [[32 - int(v & 0xFFFFFFFF).bit_length() for v in row] for row in a.tolist()], np.int32),
        N),
    _unary("round_nearest_afz", lambda a: np.sign(a) * np.floor(np.abs(a) + 0.5), X * 2),
    Program("reduce_precision", "tensor<1x2xf32>",
            "    %0 = stablehlo.reduce_precision %a, format = e8m7 : tensor<1x2xf32>\n"
            "    return %0 : tensor<1x2xf32>", (np.float32([[1.001, 3.14159]]),),
            lambda a: np.float32([[1.0, 3.140625]])),
    Program("clamp", "tensor<3x4xf32>", """    %lo = stablehlo.constant dense<-0.5> : tensor<f32>
    %hi = stablehlo.constant dense<0.5> : tensor<f32>
    %0 = stablehlo.clamp %lo, %a, %hi : (tensor<f32>, tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>""", (X,), lambda a: np.clip(a, -0.5, 0.5)),
    Program("compare of a total order", "tensor<4xi1>", """    %cst = stablehlo.constant dense<[0x80000000, 0x7FC00000, 1.0, 0xFF800000]> : tensor<4xf32>
    %0 = stablehlo.compare LT, %cst, %a, TOTALORDER : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
    return %0 : tensor<4xi1>""", (np.float32([0.0, np.inf, 1.0, np.nan]),),
            lambda a: np.array([True, False, False, True])),
    Program("broadcast, transpose, reverse, concatenate", "tensor<5x2x3xf32>", """    %0 = stablehlo.broadcast_in_dim %a, dims = [2, 0] : (tensor<3x4xf32>) -> tensor<4x2x3xf32>
    %1 = stablehlo.reverse %0, dims = [0, 2] : tensor<4x2x3xf32>
    %2 = stablehlo.slice %1 [0:1, 0:2, 0:3:1] : (tensor<4x2x3xf32>) -> tensor<1x2x3xf32>
    %3 = stablehlo.concatenate %1, %2, dim = 0 : (tensor<4x2x3xf32>, tensor<1x2x3xf32>) -> tensor<5x2x3xf32>
    return %3 : tensor<5x2x3xf32>""", (X,), lambda a: np.concatenate(
        2 * [np.broadcast_to(a.T[::-1, None, ::-1], (4, 2, 3))])[:5]),
    Program("pad between, around and off", "tensor<7x4xf32>", """    %cst = stablehlo.constant dense<9.0> : tensor<f32>
    %0 = stablehlo.pad %a, %cst, low = [1, -1], high = [1, 1], interior = [1, 0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<7x4xf32>
    return %0 : tensor<7x4xf32>""", (X,), lambda a: np.insert(
        np.insert(a, [0, 1, 2, 3], 9.0, axis=0), 4, 9.0, axis=1)[:, 1:]),
    Program("argmax with ties", "tensor<2xf32>, tensor<2xi32>", _ARGMAX, (TIES,), _argmax),
    Program("argmax with NaN", "tensor<2xf32>, tensor<2xi32>", _ARGMAX, (WITH_NAN,), _argmax),
    Program("reduce", "tensor<3xf32>", """    %cst = stablehlo.constant dense<1.5> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %cst) applies stablehlo.add across dimensions = [1] : (tensor<3x4xf32>, tensor<f32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>""", (X,), lambda a: a.sum(1) + 1.5),
    Program("reduce by a region of its own", "tensor<4xf32>", """    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %cst) across dimensions = [0] : (tensor<3x4xf32>, tensor<f32>) -> tensor<4xf32>
     reducer(%p: tensor<f32>, %q: tensor<f32>)  {
      %1 = stablehlo.add %p, %q : tensor<f32>
      %2 = stablehlo.multiply %p, %q : tensor<f32>
      %3 = stablehlo.add %1, %2 : tensor<f32>
      stablehlo.return %3 : tensor<f32>
    }
    return %0 : tensor<4xf32>""", (X,), lambda a: np.prod(1 + a, axis=0) - 1),
    Program("sort", "tensor<3x4xf32>", _sort(_PLAIN_ORDER, "%a", "tensor<3x4xf32>", 1), (X,),
            lambda a: np.sort(a, 1)),
    Program("sort by two keys", "tensor<2x4xf32>, tensor<2x4xf32>",
            _sort(_BY_SECOND, "%a, %b", "tensor<2x4xf32>, tensor<2x4xf32>", 2),
            (f32(2, 4), TIES), _lexicographic),
    Program("sort by a comparator of its own", "tensor<3x7xf32>",
            _sort(_BY_SIZE, "%a", "tensor<3x7xf32>", 1), (f32(3, 7).round(1),), _by_size),
    Program("gather of rows, clamped", "tensor<2x4xf32>", """    %0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4>}> : (tensor<3x4xf32>, tensor<2x1xi32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>""", (X, np.array([[2], [9]], np.int32)), lambda a, b: a[[2, 2]]),
    Program("gather of windows", "tensor<2x3x2xf32>", """    %0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 3, 2>}> : (tensor<3x4xf32>, tensor<2xi32>) -> tensor<2x3x2xf32>
    return %0 : tensor<2x3x2xf32>""", (X, np.array([0, 5], np.int32)),
            lambda a, b: np.stack([a[:, 0:2], a[:, 2:4]])),
    Program("gather in batches", "tensor<3xf32>", """    %0 = "stablehlo.gather"(%a, %b) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<3x4xf32>, tensor<3x1xi32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>""", (X, np.array([[3], [0], [1]], np.int32)),
            lambda a, b: a[np.arange(3), b[:, 0]]),
    Program("scatter of sums, dropped out of range", "tensor<3x4xf32>", """    %0 = "stablehlo.scatter"(%a, %b, %c) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<3x4xf32>, tensor<4x1xi32>, tensor<4x4xf32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>""", (X, np.array([[1], [1], [-1], [7]], np.int32), f32(4, 4)),
            lambda a, b, c: _scattered(a, b[:, 0], c)),
    Program("dynamic_slice, moved into the operand", "tensor<2x4xf32>", """    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.dynamic_slice %a, %b, %c, sizes = [2, 4] : (tensor<3x4xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
    return %0 : tensor<2x4xf32>""", (X, np.array(5, np.int32)), lambda a, b: a[1:3]),
    Program("dynamic_update_slice", "tensor<3x4xf32>", """    %c = stablehlo.constant dense<1> : tensor<i32>
    %0 = stablehlo.dynamic_update_slice %a, %b, %c, %c : (tensor<3x4xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    %1 = stablehlo.dynamic_update_slice %0, %b, %d, %c : (tensor<3x4xf32>, tensor<2x2xf32>, tensor<i32>, tensor<i32>) -> tensor<3x4xf32>
    return %1 : tensor<3x4xf32>""".replace("%d", "%c2").replace(
        "    %0 =", "    %c2 = stablehlo.constant dense<-3> : tensor<i32>\n    %0 ="),
            (X, f32(2, 2)), lambda a, b: np.block([[a[:1, :1], b[:1], a[:1, 3:]],
                                                   [a[1:2, :1], b[1:], a[1:2, 3:]],
                                                   [a[2:, :1], b[1:], a[2:, 3:]]])),
    Program("dot_general in batches", "tensor<2x3x5xf32>", """    %0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [2], contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3xf32>, tensor<4x5x2xf32>) -> tensor<2x3x5xf32>
    return %0 : tensor<2x3x5xf32>""", (f32(2, 4, 3), f32(4, 5, 2)),
            lambda a, b: np.einsum("bkm,knb->bmn", a, b)),
    Program("convolution of another order of axes", "tensor<3x3x5x1xf32>", """    %0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[f, 0, 1, b], window = {stride = [2, 1], pad = [[1, 1], [0, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x6x2xf32>, tensor<3x2x2x3xf32>) -> tensor<3x3x5x1xf32>
    return %0 : tensor<3x3x5x1xf32>""", (IMAGE, f32(3, 2, 2, 3)), _convolution),
    Program("reduce_window", "tensor<1x3x6x2xf32>", """    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = "stablehlo.reduce_window"(%a, %cst) <{padding = dense<[[0, 0], [0, 1], [0, 0], [0, 0]]> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 2, 1, 1>, window_strides = array<i64: 1, 2, 1, 1>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.maximum %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<1x5x6x2xf32>, tensor<f32>) -> tensor<1x3x6x2xf32>
    return %0 : tensor<1x3x6x2xf32>""", (IMAGE,), _window_max),
    Program("cumulative sum from the end", "tensor<3x4xf32>", """    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.reduce_window"(%a, %cst) <{padding = dense<[[0, 0], [0, 3]]> : tensor<2x2xi64>, window_dimensions = array<i64: 1, 4>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>""", (X,), lambda a: np.cumsum(a[:, ::-1], 1)[:, ::-1]),
    Program("select_and_scatter", "tensor<6xf32>", """    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.select_and_scatter"(%a, %b, %cst) <{padding = dense<0> : tensor<1x2xi64>, window_dimensions = array<i64: 3>, window_strides = array<i64: 3>}> ({
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.compare GE, %p, %q, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    }, {
    ^bb0(%p: tensor<f32>, %q: tensor<f32>):
      %1 = stablehlo.add %p, %q : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<6xf32>, tensor<2xf32>, tensor<f32>) -> tensor<6xf32>
    return %0 : tensor<6xf32>""", (np.float32([1, 5, 5, 2, 0, 1]), np.float32([10, 20])),
            lambda a, b: np.float32([0, 10, 0, 20, 0, 0])),
    Program("a short loop", "tensor<3x4xf32>", _LOOP.replace("ROUNDS", "7"), (X,), _loop, _STEP),
    Program("a loop that stays one", "tensor<3x4xf32>", _LOOP.replace("ROUNDS", "1000"), (X,),
            lambda a: np.full((3, 4), 1996.0) + 0 * a + 0.0, _STEP, 1e-3),
    Program("case", "tensor<3x4xf32>", """    %0 = "stablehlo.case"(%b) ({
      %1 = stablehlo.sine %a : tensor<3x4xf32>
      stablehlo.return %1 : tensor<3x4xf32>
    }, {
      %1 = stablehlo.cosine %a : tensor<3x4xf32>
      stablehlo.return %1 : tensor<3x4xf32>
    }, {
      stablehlo.return %a : tensor<3x4xf32>
    }) : (tensor<i32>) -> tensor<3x4xf32>
    return %0 : tensor<3x4xf32>""", (X, np.array(1, np.int32)), lambda a, b: np.cos(a)),
    Program("bits of other widths", "tensor<2xui32>, tensor<4x4xui8>", """    %0 = stablehlo.bitcast_convert %a : (tensor<2x4xui8>) -> tensor<2xui32>
    %1 = stablehlo.bitcast_convert %b : (tensor<4xf32>) -> tensor<4x4xui8>
    return %0, %1 : tensor<2xui32>, tensor<4x4xui8>""",
            (np.arange(8, dtype=np.uint8).reshape(2, 4), np.float32([1, -2, 3.5, 0])),
            lambda a, b: (a.view(np.uint32)[:, 0], b.view(np.uint8).reshape(4, 4))),
    Program("CHLO", "tensor<3x2xf32>, tensor<3x2xi32>, tensor<3x4xf32>", """    %values, %indices = chlo.top_k(%a, k = 2) : tensor<3x4xf32> -> (tensor<3x2xf32>, tensor<3x2xi32>)
    %0 = chlo.sinh %a : tensor<3x4xf32> -> tensor<3x4xf32>
    return %values, %indices, %0 : tensor<3x2xf32>, tensor<3x2xi32>, tensor<3x4xf32>""", (X,),
            lambda a: (-np.sort(-a, 1)[:, :2], np.argsort(-a, 1)[:, :2].astype(np.int32),
                       np.sinh(a))),
    Program("triangular solve", "tensor<3x2xf32>", """    %0 = "stablehlo.triangular_solve"(%a, %b) <{left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose TRANSPOSE>}> : (tensor<3x3xf32>, tensor<3x2xf32>) -> tensor<3x2xf32>
    return %0 : tensor<3x2xf32>""", (np.tril(f32(3, 3)) + 3 * np.eye(3, dtype=np.float32),
                                     f32(3, 2)), lambda a, b: np.linalg.solve(np.tril(a).T, b)),
    Program("eigenvalues", "tensor<3xf32>", """    %0:3 = stablehlo.custom_call @lapack_ssyevd_ffi(%a) {mhlo.backend_config = {mode = 86 : ui8, uplo = 85 : ui8}} : (tensor<3x3xf32>) -> (tensor<3x3xf32>, tensor<3xf32>, tensor<i32>)
    return %0#1 : tensor<3xf32>""", (np.float32([[2, 1, 0], [9, 3, 1], [9, 9, 5]]),),
            lambda a: np.linalg.eigvalsh(a, UPLO="U")),
    Program("float64 and int64", "tensor<3xf64>", """    %0 = stablehlo.convert %b : (tensor<3xi64>) -> tensor<3xf64>
    %1 = stablehlo.add %a, %0 : tensor<3xf64>
    %2 = stablehlo.exponential %1 : tensor<3xf64>
    return %2 : tensor<3xf64>""", (np.array([0.1, 0.2, 0.3]), np.array([1, 2, 3])),
            lambda a, b: np.exp(a + b), tolerance=1e-13),
    Program("truth values", "tensor<4xi1>, tensor<i1>", """    %cst = stablehlo.constant dense<false> : tensor<i1>
    %0 = stablehlo.xor %a, %b : tensor<4xi1>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.or across dimensions = [0] : (tensor<4xi1>, tensor<i1>) -> tensor<i1>
    return %0, %1 : tensor<4xi1>, tensor<i1>""",
            (np.array([True, False, True, False]), np.array([True, True, False, False])),
            lambda a, b: (a ^ b, np.array((a ^ b).any()))),
)
