"""The methods of tensors that are functions: ``x.exp()`` is ``weft.exp(x)``."""

from __future__ import annotations

from typing import Any

from weft.eager.conversions import Conversions
from weft.eager.functions import assembly as a
from weft.eager.functions import comparison as c
from weft.eager.functions import complex as z
from weft.eager.functions import elementwise as e
from weft.eager.functions import gathering as h
from weft.eager.functions import indexing as i
from weft.eager.functions import linear as m
from weft.eager.functions import logic as g
from weft.eager.functions import ordering as o
from weft.eager.functions import reduction as r
from weft.eager.functions import scattering as w
from weft.eager.functions import shape as s
from weft.eager.functions import special as p
from weft.eager.functions import splitting as q
from weft.eager.functions import statistics as t
from weft.eager.functions.drawn import Drawn
from weft.eager.functions.linalg import older as f
from weft.eager.functions.linalg import products
from weft.eager.signature import checked


class Functions(Conversions, Drawn):
    """Methods with the names, arguments and meanings of the functions."""

    __slots__ = ()

    add, sub, mul, div, pow, float_power = e.add, e.sub, e.mul, e.div, e.pow, e.float_power
    subtract, multiply, divide, true_divide = e.sub, e.mul, e.div, e.div
    floor_divide, remainder, fmod = e.floor_divide, e.remainder, e.fmod
    maximum, minimum, atan2, arctan2 = e.maximum, e.minimum, e.atan2, e.atan2
    hypot, logaddexp, logaddexp2 = e.hypot, e.logaddexp, p.logaddexp2
    eq, ne, lt, le, gt, ge = e.eq, e.ne, e.lt, e.le, e.gt, e.ge
    not_equal, less, less_equal = e.ne, e.lt, e.le
    greater, greater_equal = e.gt, e.ge
    neg, negative, abs, absolute, sign, relu = e.neg, e.neg, e.abs, e.abs, e.sign, e.relu
    positive, floor, ceil, round, trunc, fix = (
        e.positive, e.floor, e.ceil, e.round, e.trunc, e.trunc)
    exp, exp2, expm1, log, log2, log10, log1p = (
        e.exp, e.exp2, e.expm1, e.log, e.log2, e.log10, e.log1p)
    sqrt, rsqrt, square, reciprocal = e.sqrt, e.rsqrt, e.square, e.reciprocal
    sin, cos, tan, asin, acos, atan = e.sin, e.cos, e.tan, e.asin, e.acos, e.atan
    arcsin, arccos, arctan, arcsinh, arccosh, arctanh = (
        e.asin, e.acos, e.atan, e.asinh, e.acosh, e.atanh)
    sinh, cosh, tanh, sigmoid, erf = e.sinh, e.cosh, e.tanh, e.sigmoid, e.erf
    asinh, acosh, atanh = e.asinh, e.acosh, e.atanh
    isnan, isinf, isfinite, nan_to_num = e.isnan, e.isinf, e.isfinite, e.nan_to_num
    logical_and, logical_or, logical_xor, logical_not = (
        g.logical_and, g.logical_or, g.logical_xor, g.logical_not)
    bitwise_and, bitwise_or, bitwise_xor, bitwise_not = (
        g.bitwise_and, g.bitwise_or, g.bitwise_xor, g.bitwise_not)
    bitwise_left_shift, bitwise_right_shift = g.bitwise_left_shift, g.bitwise_right_shift
    clamp, clip, clamp_min, clamp_max = e.clamp, e.clamp, e.clamp_min, e.clamp_max
    lerp, addcmul, addcdiv = e.lerp, e.addcmul, e.addcdiv

    copysign, xlogy, fmax, fmin, gcd, lcm, ldexp, nextafter, heaviside = (
        p.copysign, p.xlogy, p.fmax, p.fmin, p.gcd, p.lcm, p.ldexp, p.nextafter, p.heaviside)
    lgamma, digamma, erfinv, erfc, i0, sinc, frac, frexp = (
        p.lgamma, p.digamma, p.erfinv, p.erfc, p.i0, p.sinc, p.frac, p.frexp)
    deg2rad, rad2deg, signbit, isposinf, isneginf = (
        p.deg2rad, p.rad2deg, p.signbit, p.isposinf, p.isneginf)
    logit, mvlgamma, igamma, igammac = p.logit, p.mvlgamma, p.igamma, p.igammac

    allclose, equal, isclose = c.allclose, c.equal, c.isclose
    is_nonzero, is_same_size, is_signed = c.is_nonzero, c.is_same_size, c.is_signed
    is_conj, is_neg, is_inference = c.is_conj, c.is_neg, c.is_inference

    sum, prod, mean, var, std, norm = r.sum, r.prod, r.mean, r.var, r.std, r.norm
    max, min, amax, amin, argmax, argmin = r.max, r.min, r.amax, r.amin, r.argmax, r.argmin
    all, any, logsumexp, softmax, log_softmax = r.all, r.any, r.logsumexp, r.softmax, r.log_softmax
    cumsum, cumprod, logcumsumexp, cummax, cummin = (
        r.cumsum, r.cumprod, r.logcumsumexp, r.cummax, r.cummin)
    nansum, nanmean, aminmax, count_nonzero, dist, renorm = (
        r.nansum, r.nanmean, r.aminmax, r.count_nonzero, r.dist, r.renorm)
    topk, sort, argsort, msort, kthvalue, mode = (
        o.topk, o.sort, o.argsort, o.msort, o.kthvalue, o.mode)
    median, nanmedian, quantile, nanquantile = o.median, o.nanmedian, o.quantile, o.nanquantile

    unique, unique_consecutive, bincount, histc, histogram, diff = (
        t.unique, t.unique_consecutive, t.bincount, t.histc, t.histogram, t.diff)
    cov, corrcoef, fliplr, flipud, rot90 = t.cov, t.corrcoef, a.fliplr, a.flipud, a.rot90

    reshape, view, permute, transpose, t = s.reshape, s.reshape, s.permute, s.transpose, s.t
    swapaxes, movedim, squeeze, unsqueeze = s.transpose, s.movedim, s.squeeze, s.unsqueeze
    swapdims, moveaxis = s.transpose, s.movedim
    ravel, flatten, unflatten, expand, broadcast_to = (
        s.ravel, s.flatten, s.unflatten, s.expand, s.expand)
    repeat, tile, repeat_interleave = s.repeat, s.repeat, s.repeat_interleave
    split, chunk, unbind, flip, roll = s.split, s.chunk, s.unbind, s.flip, s.roll
    tril, triu, masked_fill = s.tril, s.triu, s.masked_fill

    matmul, mm, bmm, mv, dot, outer = m.matmul, m.mm, m.bmm, m.mv, m.dot, m.outer
    vdot, inner, ger, kron, trace, cross = m.vdot, m.inner, m.ger, m.kron, m.trace, m.cross
    addmm, addmv, addr, addbmm, baddbmm = m.addmm, m.addmv, m.addr, m.addbmm, m.baddbmm

    gather, take, index_select = h.gather, i.take, h.index_select
    take_along_dim, masked_select, nonzero = h.take_along_dim, i.masked_select, i.nonzero
    scatter, scatter_add, index_add, index_fill, select, narrow = (
        h.scatter, h.scatter_add, h.index_add, h.index_fill, i.select, i.narrow)
    diagonal, diag, argwhere, as_strided, nonzero_static = (
        i.diagonal, i.diag, i.argwhere, i.as_strided, i.nonzero_static)
    index_put, index_copy, index_reduce, put = w.index_put, w.index_copy, w.index_reduce, w.put
    scatter_reduce, masked_scatter, diag_embed, diagflat = (
        w.scatter_reduce, w.masked_scatter, w.diag_embed, w.diagflat)
    select_scatter, slice_scatter, diagonal_scatter, as_strided_scatter = (
        w.select_scatter, w.slice_scatter, w.diagonal_scatter, w.as_strided_scatter)

    cholesky, cholesky_inverse, cholesky_solve, det, inverse, logdet = (
        f.cholesky, f.cholesky_inverse, f.cholesky_solve, f.det, f.inverse, f.logdet)
    geqrf, lu, orgqr, ormqr, matrix_power = f.geqrf, f.lu, f.orgqr, f.ormqr, products.matrix_power
    lu_solve, matrix_exp, pinverse, qr, slogdet, svd, triangular_solve = (
        f.lu_solve, f.matrix_exp, f.pinverse, f.qr, f.slogdet, f.svd, f.triangular_solve)

    @checked
    def where(self, condition: Any, other: Any) -> Any:
        """The tensor where ``condition`` holds, else ``other``."""
        return e.where(condition, self, other)

    @checked
    def expand_as(self, other: Any) -> Any:
        """Broadcast to the shape of ``other``."""
        return s.expand(self, other.shape)

    @checked
    def view_as(self, other: Any) -> Any:
        """In the shape of ``other``."""
        return s.reshape(self, other.shape)

    reshape_as = view_as

    tensor_split, hsplit, vsplit, dsplit, split_with_sizes, sum_to_size = (
        q.tensor_split, q.hsplit, q.vsplit, q.dsplit, q.split_with_sizes, q.sum_to_size)
    unsafe_chunk, unsafe_split, narrow_copy = q.unsafe_chunk, q.unsafe_split, q.narrow_copy
    unsafe_split_with_sizes = q.split_with_sizes
    angle, sgn, conj, conj_physical, resolve_conj, resolve_neg, adjoint = (
        z.angle, z.sgn, z.conj, z.conj_physical, z.resolve_conj, z.resolve_neg, z.adjoint)
    isreal, is_complex = z.isreal, z.is_complex

    @checked
    def rsub(self, other: Any, *, alpha: Any = 1) -> Any:
        """``other - alpha * self``."""
        return e.rsub(self, other, alpha=alpha)

    @checked
    def polygamma(self, n: int) -> Any:
        """The derivative of order ``n`` of ``digamma``."""
        return p.polygamma(n, self)


class Operators:
    """Python's operators."""

    __slots__ = ()
    __array_priority__ = 1000
    __array_ufunc__ = None  # makes NumPy leave ``array + x`` to ``__radd__``

    def __add__(self, other: Any) -> Any:
        return e.binary("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return e.binary("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return e.binary("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return e.binary("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return e.binary("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return e.binary("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return e.binary("divide", self, other, to_float=True)

    def __rtruediv__(self, other: Any) -> Any:
        return e.binary("divide", other, self, to_float=True)

    def __floordiv__(self, other: Any) -> Any:
        return e.floor_divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return e.floor_divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return e.remainder(self, other)

    def __rmod__(self, other: Any) -> Any:
        return e.remainder(other, self)

    def __pow__(self, other: Any) -> Any:
        return e.pow(self, other)

    def __rpow__(self, other: Any) -> Any:
        return e.pow(other, self)

    def __matmul__(self, other: Any) -> Any:
        return m.matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return m.matmul(other, self)

    def __neg__(self) -> Any:
        return e.neg(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return e.abs(self)

    def __invert__(self) -> Any:
        return g.bitwise_not(self)

    def __and__(self, other: Any) -> Any:
        return g.bitwise_and(self, other)

    def __rand__(self, other: Any) -> Any:
        return g.bitwise_and(other, self)

    def __or__(self, other: Any) -> Any:
        return g.bitwise_or(self, other)

    def __ror__(self, other: Any) -> Any:
        return g.bitwise_or(other, self)

    def __xor__(self, other: Any) -> Any:
        return g.bitwise_xor(self, other)

    def __rxor__(self, other: Any) -> Any:
        return g.bitwise_xor(other, self)

    def __lshift__(self, other: Any) -> Any:
        return g.bitwise_left_shift(self, other)

    def __rshift__(self, other: Any) -> Any:
        return g.bitwise_right_shift(self, other)

    def __eq__(self, other: object) -> Any:
        return e.eq(self, other)

    def __ne__(self, other: object) -> Any:
        return e.ne(self, other)

    def __lt__(self, other: Any) -> Any:
        return e.lt(self, other)

    def __le__(self, other: Any) -> Any:
        return e.le(self, other)

    def __gt__(self, other: Any) -> Any:
        return e.gt(self, other)

    def __ge__(self, other: Any) -> Any:
        return e.ge(self, other)

    def __hash__(self) -> int:
        return id(self)
