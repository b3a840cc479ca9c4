"""Converters of operators on complex tensors, which are pairs of real ones.

What operators are for pairs is said by ``weft.op.composites.complex_numbers``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from weft import op
from weft.frontend.torch.aten.linear import multiplied
from weft.frontend.torch.complex_pairs import (
    Complex,
    of_complex,
    pair_of,
    parts_of,
    real_dtype,
)
from weft.frontend.torch.node import Node, axis_of, dtype_in, rank_of, shape_in
from weft.frontend.torch.registry import converts, find_converter
from weft.ir import Expr
from weft.ir.shape import (
    AnyDim,
    Dim,
    KnownDim,
    bounds_of,
    dim_add,
    dim_floordiv,
    dim_product,
    dim_sub,
)
from weft.op.composites import complex_arithmetic as arithmetic
from weft.op.composites import complex_functions as functions
from weft.op.composites.complex_numbers import COMPOSITES
from weft.op.composites.terms import Term

# Linear operators, which act on each part alone.
_BY_PARTS = """view reshape _unsafe_view _reshape_copy view_copy permute permute_copy transpose.int
    transpose_copy.int t t_copy numpy_T unsqueeze unsqueeze_copy squeeze squeeze_copy expand
    expand_copy slice.Tensor slice_copy.Tensor select.int select_copy.int narrow flatten cat stack
    index_select index gather clone alias detach flip roll sum mean cumsum repeat split.Tensor
    split_with_sizes chunk unbind.int diagonal tril triu neg constant_pad_nd where.self
    lift_fresh_copy contiguous index_put index_add unfold copy slice_scatter select_scatter
    diagonal_scatter scatter.src scatter_add as_strided"""
# By operator, the arguments that may be real numbers or tensors of any type beside complex ones.
_DATA = {"cat": (0,), "stack": (0,), "where": (1, 2), "constant_pad_nd": (2,),
         **dict.fromkeys(("copy", "slice_scatter", "select_scatter", "diagonal_scatter"), (0, 1))}
_BILINEAR = "mm bmm matmul dot mv"
_CREATED = "full full_like zeros zeros_like ones ones_like scalar_tensor empty empty_like"


def _on_reals(node: Node, values: Sequence[Any]) -> Any:
    """The operator of ``node`` on real values."""
    result = node.result
    listed = result if isinstance(result, (tuple, list)) else [result]
    seen = [SimpleNamespace(dtype=real_dtype(r.dtype), shape=r.shape)
            if isinstance(r, torch.Tensor) else r for r in listed]
    like = dataclasses.replace(node, result=seen if isinstance(result, (tuple, list)) else seen[0])
    converter = find_converter(node.op)
    if converter is None:
        raise node.unsupported("complex numbers")
    return converter(like, *values)


def _part(node: Node, value: Any, index: int) -> Any:
    """The real (0) or imaginary (1) part; integers and booleans are sizes, indices and masks."""
    if isinstance(value, Complex):
        return (value.real, value.imag)[index]
    if index == 1 and isinstance(value, Expr) and dtype_in(value).is_float:
        return _complex(node, value).imag
    if isinstance(value, (list, tuple)):
        return [_part(node, item, index) for item in value]
    if isinstance(value, complex):
        return (value.real, value.imag)[index]
    return value


@of_complex(*_BY_PARTS.split())
def by_parts(node: Node, *values: Any) -> Any:
    if not _result_dtype(node).is_complex:  # copies to real tensors leave out imaginary parts
        return _on_reals(node, [_part(node, value, 0) for value in values])
    data = _DATA.get(node.op.split(".")[1], ())
    given = [_as_data(node, value) if i in data else value for i, value in enumerate(values)]
    real, imag = (_on_reals(node, [_part(node, value, i) for value in given]) for i in range(2))
    if isinstance(real, (tuple, list)):
        return [Complex(*both) for both in zip(real, imag, strict=True)]
    return Complex(real, imag)


def _as_data(node: Node, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_data(node, item) for item in value]
    return _complex(node, value) if isinstance(value, (Expr, Complex)) else complex(value)


@of_complex(*_CREATED.split())
def created(node: Node, *values: Any) -> Complex:
    """A tensor of one number, whose real part is what the operator makes."""
    parts = [_on_reals(node, [_part(node, value, i) for value in values]) for i in range(2)]
    has_imag = any(isinstance(value, complex) for value in values)
    zeros = node.call(op.zeros, shape=shape_in(parts[0]), dtype=dtype_in(parts[0]))
    return Complex(parts[0], parts[1] if has_imag else zeros)


def _complex(node: Node, value: Any) -> Complex:
    """A number or a real tensor as a complex tensor."""
    if isinstance(value, Complex):
        return value
    dtype = node.dtype_named(real_dtype(_result_dtype(node)))
    if isinstance(value, Expr):
        real = node.cast(value, dtype)
        return Complex(real, node.call(op.zeros, shape=shape_in(real), dtype=dtype))
    number = complex(value)
    return Complex(node.constant(number.real, dtype), node.constant(number.imag, dtype))


def _result_dtype(node: Node) -> torch.dtype:
    result = node.result[0] if isinstance(node.result, (tuple, list)) else node.result
    return result.dtype


@of_complex("add", "sub", "rsub")
def add(node: Node, x: Any, y: Any, alpha: Any = 1) -> Complex:
    a, b = _complex(node, x), _complex(node, y)
    if "rsub" in node.op:
        a, b = b, a
    if alpha != 1:
        b = _times(node, b, _complex(node, alpha))
    operator = op.add if ".add." in node.op else op.subtract
    return Complex(node.call(operator, a.real, b.real), node.call(operator, a.imag, b.imag))


def _composed(node: Node, composite: Callable[..., Any], *values: Complex) -> Any:
    """A composite over pairs: complex numbers, or a real or boolean tensor."""
    found = node.composed(composite, *[(value.real, value.imag) for value in values])
    return Complex(*found) if isinstance(found, tuple) else found


# Functions of one tensor whose names are those of operators.
_FUNCTIONS = """abs exp expm1 log log1p log2 log10 sqrt rsqrt sigmoid sin cos tan asin acos atan
    sinh cosh tanh asinh acosh atanh isnan isinf isfinite logical_not"""


@of_complex(*_FUNCTIONS.split())
def function(node: Node, x: Complex) -> Any:
    return _composed(node, COMPOSITES[node.op.split(".")[1]], x)


@of_complex("mul")
def multiply(node: Node, x: Any, y: Any) -> Complex:
    return _times(node, _complex(node, x), _complex(node, y))


def _times(node: Node, a: Complex, b: Complex) -> Complex:
    return _composed(node, arithmetic.multiply, a, b)  # type: ignore[no-any-return]


@of_complex(*_BILINEAR.split())
def matrix_product(node: Node, x: Any, y: Any, *_options: Any) -> Complex:
    def times(p: Term, q: Term) -> Term:
        return Term(node, _on_reals(node, [p.expr, q.expr]))

    return _composed(node, lambda _e, a, b: arithmetic.product(a, b, times),  # type: ignore[no-any-return]
                     _complex(node, x), _complex(node, y))


@of_complex("linear", "convolution")
def layer(node: Node, x: Any, weight: Any, bias: Any, *window: Any) -> Complex:
    """A bilinear function of data and weight, and a bias along the channels."""
    def times(p: Term, q: Term) -> Term:
        return Term(node, _on_reals(node, [p.expr, q.expr, None, *window]))

    result = _composed(node, lambda _e, a, b: arithmetic.product(a, b, times),
                       _complex(node, x), _complex(node, weight))
    if bias is None:
        return result  # type: ignore[no-any-return]
    given, axis = _complex(node, bias), 1 if window else -1
    return Complex(*(node.call(op.nn.bias_add, part, added, axis=axis) for part, added in
                     ((result.real, given.real), (result.imag, given.imag))))


@of_complex("addmm", "baddbmm")
def matmul_and_sum(node: Node, bias: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Complex:
    def times(p: Term, q: Term) -> Term:
        return Term(node, multiplied(node, p.expr, q.expr))

    product = _composed(node, lambda _e, p, q: arithmetic.product(p, q, times),
                        _complex(node, a), _complex(node, b))
    scaled = [part if factor == 1 else _times(node, part, _complex(node, factor))
              for part, factor in ((_complex(node, bias), beta), (product, alpha))]
    return Complex(*(node.call(op.add, *parts) for parts in
                     ((one.real for one in scaled), (one.imag for one in scaled))))


@of_complex("div", "true_divide")
def divide(node: Node, x: Any, y: Any) -> Complex:
    a, b = _complex(node, x), _complex(node, y)
    if not isinstance(y, Complex) and not isinstance(y, complex):
        return a.over_parts(lambda part: node.call(op.divide, part, b.real))
    return _composed(node, arithmetic.divide, a, b)  # type: ignore[no-any-return]


@of_complex("linalg_vector_norm")
def vector_norm(node: Node, x: Complex, *options: Any) -> Any:
    return _on_reals(node, [_composed(node, COMPOSITES["abs"], x), *options])


@of_complex("reciprocal")
def reciprocal(node: Node, x: Complex) -> Complex:
    return _composed(node, arithmetic.reciprocal, x)  # type: ignore[no-any-return]


@converts("_conj", "_conj_physical", "conj_physical", "conj")
def real_itself(_node: Node, x: Expr) -> Expr:
    return x


@of_complex("_conj", "_conj_physical", "conj_physical", "conj")
def conjugate(node: Node, x: Complex) -> Complex:
    return _composed(node, arithmetic.conjugate, x)  # type: ignore[no-any-return]


@converts("resolve_conj", "resolve_neg")
@of_complex("resolve_conj", "resolve_neg")
def unchanged(_node: Node, x: Any) -> Any:
    return x


@converts("_neg_view")
def negated(node: Node, x: Expr) -> Expr:
    return node.call(op.negative, x)


@of_complex("_to_copy", "to.dtype")
def copied(node: Node, x: Any, *_options: Any) -> Any:
    dtype = node.dtype_named(real_dtype(_result_dtype(node)))
    if not _result_dtype(node).is_complex:  # torch drops the imaginary part
        return node.cast(x.real, dtype)
    return _complex(node, x).over_parts(lambda part: node.cast(part, dtype))


@of_complex("real", "imag")
def part(node: Node, x: Complex) -> Expr:
    return x.real if ".real." in node.op else x.imag


@converts("real")
def real_of_real(_node: Node, x: Expr) -> Expr:
    return x


@converts("complex")
@of_complex("complex")
def from_parts(node: Node, real: Expr, imag: Expr) -> Complex:
    shape = node.broadcast_shape(real, imag)
    return Complex(node.broadcast(real, shape), node.broadcast(imag, shape))


@converts("polar")
@of_complex("polar")
def polar(node: Node, length: Expr, angle: Expr) -> Complex:
    return Complex(*node.composed(arithmetic.polar, length, angle))


@converts("view_as_complex")
@of_complex("view_as_complex")
def view_as_complex(node: Node, x: Expr) -> Complex:
    return parts_of(x, node.span)


@converts("view_as_real")
@of_complex("view_as_real")
def view_as_real(_node: Node, x: Complex) -> Expr:
    return pair_of(x)


@of_complex("angle")
def angle_of(node: Node, x: Complex) -> Expr:
    return _composed(node, arithmetic.angle, x)  # type: ignore[no-any-return]


@of_complex("sgn")
def sgn(node: Node, x: Complex) -> Complex:
    return _composed(node, arithmetic.sign, x)  # type: ignore[no-any-return]


@of_complex("pow.Tensor_Scalar")
def power(node: Node, x: Complex, exponent: Any) -> Complex:
    """Whole powers as products, others through the logarithm."""
    if isinstance(exponent, int) or (isinstance(exponent, float) and exponent.is_integer()):
        count = abs(int(exponent))
        if 0 < count <= _MOST_FACTORS:
            made = x
            for _ in range(count - 1):
                made = _times(node, made, x)
            return made if exponent > 0 else divide(node, 1, made)
    return power_of(node, x, exponent)


_MOST_FACTORS = 8


@of_complex("pow")
def power_of(node: Node, x: Any, exponent: Any) -> Complex:
    return _composed(node, functions.power, _complex(node, x),  # type: ignore[no-any-return]
                     _complex(node, exponent))


@of_complex("eq", "ne")
def compare(node: Node, x: Any, y: Any) -> Expr:
    a, b = (v if isinstance(v, Complex) else Complex(*_parts(node, v, x, y)) for v in (x, y))
    composite = arithmetic.equal if ".eq." in node.op else arithmetic.not_equal
    return _composed(node, composite, a, b)  # type: ignore[no-any-return]


def _parts(node: Node, value: Any, *others: Any) -> tuple[Expr, Expr]:
    like = next(other.real for other in others if isinstance(other, Complex))
    if isinstance(value, Expr):
        real = node.cast(value, dtype_in(like))
        return real, node.scalar_like(0, like)
    number = complex(value)
    return node.scalar_like(number.real, like), node.scalar_like(number.imag, like)


def transformed(node: Node, x: Complex, axes: Sequence[int], *, inverse: bool) -> Complex:
    """The Fourier transform along ``axes``; the inverse one is divided by the sizes."""
    rank = rank_of(x.real)
    for axis in axes:
        made = node.call(op.dft, x.real, x.imag, inverse=inverse, axis=axis_of(axis, rank) - rank)
        x = Complex(node.field(made, 0), node.field(made, 1))
    return x


def _scaled(node: Node, x: Complex, count: KnownDim, normalization: int, *, inverse: bool
            ) -> Complex:
    """``normalization`` is 0 for the plain sum, 1 for 1 / sqrt(n), 2 for 1 / n."""
    halves = 2 * inverse - normalization  # of the exponent of ``count``
    if halves == 0 or count == 1:
        return x
    if isinstance(count, int):
        factor = (count if abs(halves) == 2 else math.sqrt(count)) ** (1 if halves > 0 else -1)
        return x.over_parts(lambda p: node.call(op.multiply, p, node.scalar_like(factor, p)))
    size = node.scalar_like(count, x.real)
    size = size if abs(halves) == 2 else node.call(op.sqrt, size)
    return x.over_parts(lambda p: node.call(op.multiply if halves > 0 else op.divide, p, size))


def _count(node: Node, x: Complex, axes: Sequence[int], *more: KnownDim) -> KnownDim:
    count = dim_product((*(shape_in(x.real)[axis] for axis in axes), *more))
    if isinstance(count, AnyDim):
        raise node.unsupported("a Fourier transform along an axis of a size that only run time "
                               "determines", got=str(x.real.checked_type))
    return count


@of_complex("_fft_c2c")
@converts("_fft_c2c")
def fft(node: Node, x: Complex, axes: Sequence[int], normalization: int, forward: bool) -> Complex:
    made = transformed(node, x, axes, inverse=not forward)
    return _scaled(node, made, _count(node, x, axes), normalization, inverse=not forward)


@of_complex("_fft_r2c")
@converts("_fft_r2c")
def fft_of_real(node: Node, x: Expr, axes: Sequence[int], normalization: int, onesided: bool
                ) -> Complex:
    """The last of ``axes`` first, of which half of the frequencies may suffice."""
    whole = Complex(x, node.call(op.zeros, shape=shape_in(x), dtype=dtype_in(x)))
    count, last = _count(node, whole, axes), axis_of(axes[-1], rank_of(x))
    made = _half(node, x, last) if onesided else transformed(node, whole, [last], inverse=False)
    made = transformed(node, made, axes[:-1], inverse=False)
    return _scaled(node, made, count, normalization, inverse=False)


def _half(node: Node, x: Expr, axis: int) -> Complex:
    """The frequencies along ``axis`` that are not redundant by symmetry."""
    order = [a for a in range(rank_of(x)) if a != axis] + [axis]
    made = node.call(op.rdft, node.transpose(x, order))
    back = [order.index(a) for a in range(len(order))]
    return Complex(*(node.transpose(node.field(made, i), back) for i in range(2)))


@of_complex("_fft_c2r")
@converts("_fft_c2r")
def fft_to_real(node: Node, x: Complex, axes: Sequence[int], normalization: int,
                size: KnownDim) -> Expr:
    """The inverse of ``_fft_r2c``: the other frequencies are conjugates of those given."""
    last = axis_of(axes[-1], rank_of(x.real))
    made = transformed(node, x, axes[:-1], inverse=True)
    count = _count(node, x, axes[:-1], size)
    made = _at_the_end(node, made, last, dim_add(dim_floordiv(size, 2), 1))
    found = node.call(op.irdft, made.real, made.imag, size=size)
    order = [*range(rank_of(x.real))]
    order.insert(last, order.pop())
    found = node.transpose(found, order)
    return _scaled(node, Complex(found, found), count, normalization, inverse=True).real


def _at_the_end(node: Node, x: Complex, axis: int, count: Dim) -> Complex:
    """The first ``count`` elements along ``axis``, which becomes the last one."""
    given = shape_in(x.real)[axis]
    spare = dim_sub(given, count)
    low = None if isinstance(spare, AnyDim) else bounds_of(spare)[0]
    if low is None or low < 0:
        raise node.unsupported("fewer frequencies than the result needs", got=str(given),
                               expected=str(count))
    order = [a for a in range(rank_of(x.real)) if a != axis] + [axis]
    return x.over_parts(lambda p: node.transpose(node.slice(p, axis, 0, count), order))
