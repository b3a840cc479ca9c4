"""Linear algebra: the operations of the specification, and JAX's calls of LAPACK on CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Node, product
from weft.frontend.stablehlo.registry import CONVERTERS, converts
from weft.ir.expr import Expr


def _stacked(node: Node, x: Expr) -> Expr:
    """Matrices in one axis in front of the two of each."""
    shape = shape_in(x)
    if len(shape) < 2:
        raise node.fail("the operand is no matrix", got=str(shape))
    return node.reshape(x, (product(shape[:-2]), *shape[-2:]))


def _lower(node: Node, x: Expr, *, from_upper: bool = False) -> tuple[Expr, Expr]:
    """The Cholesky factor of matrices, with zeros above the diagonal, and ``info``."""
    whole = _stacked(node, x)
    if from_upper:
        whole = node.transpose(whole, (0, 2, 1))
    pair = node.call(op.linalg.cholesky, whole)
    return node.field(pair, 0), node.field(pair, 1)


@converts("stablehlo.cholesky")
def cholesky(node: Node, x: Expr) -> Expr:
    is_lower = bool(node.attributes.get("lower", False))
    factor, _ = _lower(node, x, from_upper=not is_lower)
    factor = factor if is_lower else node.transpose(factor, (0, 2, 1))
    return node.reshape(factor, shape_in(x))


@converts("stablehlo.triangular_solve")
def triangular_solve(node: Node, a: Expr, b: Expr) -> Expr:
    attributes = node.attributes
    return solved(node, a, b, is_left=bool(attributes.get("left_side", True)),
                  is_lower=bool(attributes.get("lower", False)),
                  is_unit=bool(attributes.get("unit_diagonal", False)),
                  is_transposed=node.word("transpose_a", "NO_TRANSPOSE") != "NO_TRANSPOSE")


def solved(node: Node, a: Expr, b: Expr, *, is_left: bool, is_lower: bool, is_unit: bool,
           is_transposed: bool) -> Expr:
    """``x`` with ``a x = b``, or ``x a = b`` from the right, for triangular ``a``."""
    matrices, values = _stacked(node, a), _stacked(node, b)
    if not is_left:  # x a = b is a' x' = b'
        values = node.transpose(values, (0, 2, 1))
        is_transposed = not is_transposed
    if is_transposed:
        matrices, is_lower = node.transpose(matrices, (0, 2, 1)), not is_lower
    found = node.call(op.linalg.triangular_solve, matrices, values, lower=is_lower, unit=is_unit)
    found = found if is_left else node.transpose(found, (0, 2, 1))
    return node.reshape(found, shape_in(b))


def _letter(node: Node, name: str, default: str) -> str:
    """An argument of LAPACK, a character that is written as its number."""
    config: Any = node.attributes.get("mhlo.backend_config")
    value = config.get(name) if isinstance(config, Mapping) else None
    return chr(value) if isinstance(value, int) else default


def _lapack_cholesky(node: Node, x: Expr) -> list[Expr]:
    is_lower = _letter(node, "uplo", "L") == "L"
    factor, info = _lower(node, x, from_upper=not is_lower)
    factor = factor if is_lower else node.transpose(factor, (0, 2, 1))
    return [node.reshape(factor, shape_in(x)), node.reshape(info, shape_in(x)[:-2])]


def _lapack_solve(node: Node, a: Expr, b: Expr) -> Expr:
    return solved(node, a, b, is_left=_letter(node, "side", "L") == "L",
                  is_lower=_letter(node, "uplo", "L") == "L",
                  is_unit=_letter(node, "diag", "N") == "U",
                  is_transposed=_letter(node, "trans_x", "N") != "N")


def _lapack_lu(node: Node, x: Expr) -> list[Expr]:
    batch = shape_in(x)[:-2]
    found = node.call(op.linalg.lu, _stacked(node, x))
    packed, pivots, info = (node.field(found, n) for n in (0, 1, 3))
    return [node.reshape(packed, shape_in(x)),
            node.reshape(pivots, (*batch, shape_in(pivots)[-1])), node.reshape(info, batch)]


def _lapack_qr(node: Node, x: Expr) -> list[Expr]:
    found = node.call(op.linalg.qr, _stacked(node, x))
    packed, scales = node.field(found, 0), node.field(found, 1)
    return [node.reshape(packed, shape_in(x)),
            node.reshape(scales, (*shape_in(x)[:-2], shape_in(scales)[-1]))]


def _lapack_q(node: Node, packed: Expr, scales: Expr) -> Expr:
    """The orthogonal factor that ``packed`` describes: its reflections of the unit vectors."""
    shape = shape_in(packed)
    matrices = _stacked(node, packed)
    lines = node.reshape(scales, (product(shape[:-2]), shape_in(scales)[-1]))
    rows, columns = shape[-2:]
    positions = (node.reshape(node.iota(n, "int32"), line)
                 for n, line in ((rows, (rows, 1)), (columns, (1, columns))))
    unit = node.cast(node.call(op.equal, *positions), dtype_in(packed))
    made = node.call(op.linalg.reflect, matrices, lines,
                     node.broadcast(unit, shape_in(matrices)))
    return node.reshape(made, shape)


def _lapack_eigh(node: Node, x: Expr) -> list[Expr]:
    """Eigenvectors, eigenvalues, and ``info``, which is 0."""
    whole = _stacked(node, x)
    if _letter(node, "uplo", "L") == "U":
        whole = node.transpose(whole, (0, 2, 1))
    pair = node.call(op.linalg.eigh, whole)
    info = node.broadcast(node.constant(0, "int32"), shape_in(x)[:-2])
    return [node.reshape(node.field(pair, 1), shape_in(x)),
            node.reshape(node.field(pair, 0), shape_in(x)[:-1]), info]


for _kind in "sd":
    CONVERTERS.register(f"@lapack_{_kind}syevd_ffi", _lapack_eigh)
    CONVERTERS.register(f"@lapack_{_kind}potrf_ffi", _lapack_cholesky)
    CONVERTERS.register(f"@lapack_{_kind}trsm_ffi", _lapack_solve)
    CONVERTERS.register(f"@lapack_{_kind}getrf_ffi", _lapack_lu)
    CONVERTERS.register(f"@lapack_{_kind}geqrf_ffi", _lapack_qr)
    CONVERTERS.register(f"@lapack_{_kind}orgqr_ffi", _lapack_q)


@converts("@Sharding", "@annotate_device_placement", "@xla.sdy.FuncResultSharding",
          "@SPMDFullToShardShape", "@SPMDShardToFullShape", "sdy.sharding_constraint")
def placed(_node: Node, *values: Expr) -> Sequence[Expr]:
    """Where values are kept: programs of weft run on one device."""
    return values


@converts("@shape_assertion")
def shape_assertion(_node: Node, *_: Any) -> Sequence[Expr]:
    """What JAX demands of sizes, weft's symbols and their bounds say."""
    return ()


@converts("@lu_pivots_to_permutation")
def pivots_to_permutation(node: Node, pivots: Expr) -> Expr:
    shape = shape_in(pivots)
    rows = node.shape()[-1]
    lines = node.reshape(pivots, (product(shape[:-1]), shape[-1]))
    one = node.number(1, lines)
    order = node.call(op.linalg.pivot_order, node.call(op.add, lines, one), rows=rows)
    return node.reshape(node.cast(order, node.dtype()), (*shape[:-1], rows))
