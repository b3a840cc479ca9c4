"""Products and sums with sparse matrices, stored by rows (CSR) or by rows of blocks (BSR).

A matrix is ``data`` (values, or blocks), ``indices`` (the column of each), and ``indptr`` (where
each row starts, and where the last ends). Entries with a column outside the matrix are ignored,
and row ends are clamped to the data, so that every access stays inside its array.
"""

from __future__ import annotations

from typing import Any

from weft import te
from weft.tir.expr import PrimExpr, const
from weft.topi.layout import Layout
from weft.topi.nn.conv import pad_spatial
from weft.topi.upcast import converted, upcast


def csr_rows(dense: Any, data: Any, indices: Any, indptr: Any, out: Any, is_left: bool) -> None:
    """``out[m, n]``: row m of ``dense`` times sparse row n; swapped for ``is_left``."""
    depth = dense.shape[1]
    for row in range(indptr.shape[0] - 1):
        first = min(max(indptr[row], 0), data.shape[0])
        last = min(max(indptr[row + 1], first), data.shape[0])
        for m in range(dense.shape[0]):
            total = 0.0
            for p in range(first, last):
                k = indices[p]
                if 0 <= k < depth:
                    total += dense[m, k] * data[p]
            if is_left:
                out[row, m] = total
            else:
                out[m, row] = total


def bsr_rows(dense: Any, data: Any, indices: Any, indptr: Any, out: Any, is_left: bool) -> None:
    """As ``csr_rows``, for a matrix of blocks (rows, columns)."""
    rows, columns = data.shape[1], data.shape[2]
    blocks = dense.shape[1] // columns
    for row in range(indptr.shape[0] - 1):
        first = min(max(indptr[row], 0), data.shape[0])
        last = min(max(indptr[row + 1], first), data.shape[0])
        for m in range(dense.shape[0]):
            for r in range(rows):
                total = 0.0
                for p in range(first, last):
                    k = indices[p]
                    if 0 <= k < blocks:
                        for c in range(columns):
                            total += dense[m, k * columns + c] * data[p, r, c]
                if is_left:
                    out[row * rows + r, m] = total
                else:
                    out[m, row * rows + r] = total


def add_rows(dense: Any, data: Any, indices: Any, indptr: Any, out: Any) -> None:
    """``out``: ``dense`` plus the sparse matrix."""
    for row in range(dense.shape[0]):
        for k in range(dense.shape[1]):
            out[row, k] = dense[row, k]
        first = min(max(indptr[row], 0), data.shape[0])
        last = min(max(indptr[row + 1], first), data.shape[0])
        for p in range(first, last):
            k = indices[p]
            if 0 <= k < dense.shape[1]:
                out[row, k] += data[p]


def turned_rows(
    data: Any, indices: Any, indptr: Any, out: Any, columns: Any, starts: Any, positions: Any
) -> None:
    """The transpose by counting sort: count each column, then distribute the entries in order."""
    size = starts.shape[0] - 1
    for k in range(size + 1):
        starts[k] = 0
    for p in range(data.shape[0]):
        if 0 <= indices[p] < size:
            starts[indices[p] + 1] += 1
    for k in range(size):
        starts[k + 1] += starts[k]
        positions[k] = starts[k]
    for p in range(starts[size], data.shape[0]):
        out[p] = 0
        columns[p] = 0
    for row in range(size):
        first = min(max(indptr[row], 0), data.shape[0])
        last = min(max(indptr[row + 1], first), data.shape[0])
        for p in range(first, last):
            k = indices[p]
            if 0 <= k < size and positions[k] < data.shape[0]:
                out[positions[k]] = data[p]
                columns[positions[k]] = row
                positions[k] += 1


def sparse_dense(
    dense: te.Tensor, data: te.Tensor, indices: te.Tensor, indptr: te.Tensor, *, is_left: bool
) -> te.Tensor:
    """``dense`` (M, K) times the transposed sparse matrix (N, K), or the operands swapped."""
    rows: PrimExpr = indptr.shape[0] - 1
    rows = rows * data.shape[1] if data.ndim == 3 else rows
    shape = (rows, dense.shape[0]) if is_left else (dense.shape[0], rows)
    body = bsr_rows if data.ndim == 3 else csr_rows
    wide = upcast(dense)
    product = te.python_extern([shape], [wide, upcast(data), indices, indptr], body, [wide.dtype],
                               scalars=[is_left], name="sparse_dense")[0]
    return converted(product, dense.dtype)


def sparse_add(
    dense: te.Tensor, data: te.Tensor, indices: te.Tensor, indptr: te.Tensor
) -> te.Tensor:
    """``dense`` (N, K) plus the sparse matrix."""
    wide = upcast(dense)
    total = te.python_extern([dense.shape], [wide, upcast(data), indices, indptr], add_rows,
                             [wide.dtype], name="sparse_add")[0]
    return converted(total, dense.dtype)


def sparse_transpose(
    data: te.Tensor, indices: te.Tensor, indptr: te.Tensor
) -> tuple[te.Tensor, ...]:
    """The transpose of a square sparse matrix, with ascending columns in each row."""
    wide = upcast(data)
    values, columns, ends = te.python_extern(
        [data.shape, indices.shape, indptr.shape], [wide, indices, indptr], turned_rows,
        [wide.dtype, indices.dtype, indptr.dtype],
        scratch=[((indptr.shape[0],), indptr.dtype)], name="sparse_transpose",
    )
    return converted(values, data.dtype), columns, ends


def sparse_conv2d(
    data: te.Tensor, weights: te.Tensor, indices: te.Tensor, indptr: te.Tensor, *, layout: Layout,
    kernel_size: int,
) -> te.Tensor:
    """Convolution by a sparse matrix (O, taps * C), taps row by row; the image size is unchanged.

    Stage ``columns`` (im2col) has one row per position of the result: the pixels that it reads.
    """
    sizes = {letter: data.shape[layout.index_of(letter)] for letter in "NCHW"}
    around = kernel_size // 2
    padded = pad_spatial(data, layout, "HW", (around,), const(0, data.dtype))
    rows, columns, channels = sizes["H"], sizes["W"], sizes["C"]

    def pixel(position: PrimExpr, k: PrimExpr) -> PrimExpr:
        tap, x, y = k // channels, position % columns, position // columns % rows
        return padded[layout.indices({
            "N": position // (rows * columns), "C": k % channels, "H": y + tap // kernel_size,
            "W": x + tap % kernel_size})]

    positions = sizes["N"] * rows * columns
    seen = te.compute((positions, channels * (kernel_size * kernel_size)), pixel, name="columns")
    product = sparse_dense(seen, weights, indices, indptr, is_left=False)

    def element(*index: PrimExpr) -> PrimExpr:
        at = dict(zip(layout.primal_axes, index, strict=True))
        return product[(at["N"] * rows + at["H"]) * columns + at["W"], at["C"]]

    shape = layout.indices(sizes | {"C": product.shape[1]})
    return te.compute(shape, element, name="sparse_conv2d")
