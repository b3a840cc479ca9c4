"""The type of a call with symbolic sizes, at the sizes of a case, is the type for these sizes."""

from __future__ import annotations

import pytest

import weft.op  # noqa: F401 - registers the operators
from tests.unit.op.harness import flatten, make_call, output_types
from tests.unit.op.symbolic_cases import symbolic_case
from weft.ir.op import OPS
from weft.ir.shape import AnyDim, substitute_dim

# Operators whose cases have no size that may be a symbol, and why.
_RANK, _EQUAL = "it is the rank of the result", "sizes are equal that differ in meaning"
FIXED = {
    "dyn.broadcast_to": _RANK, "dyn.full": _RANK, "dyn.ones": _RANK, "dyn.zeros": _RANK,
    "dyn.sparse_to_dense": _RANK, "image.affine_grid": "maps have two by three numbers",
    "nn.conv2d_backward_weight": _EQUAL, "nn.max_pool3d_indices_grad": _EQUAL,
    "nn.deformable_conv2d": "kernels have fixed sizes", "random.normal": "keys have two words",
    "random.randint": "keys have two words", "random.uniform": "keys have two words",
    "random.threefry_generate": "keys have two words",
    "random.threefry_split": "keys have two words",
}


@pytest.mark.parametrize("name", sorted(n for n in OPS if OPS.get(n).cases))
def test_symbolic_types(name: str) -> None:
    op = OPS.get(name)
    symbols: set[str] = set()
    sizes: set[int] = set()
    for number, one in enumerate(op.cases):
        symbolic = symbolic_case(op, one)
        symbols |= symbolic.sizes.keys()
        sizes |= {s for a in flatten(symbolic.arrays) for s in a.shape if s > 1}
        expected = output_types(make_call(op, one, symbolic.arrays).checked_type)
        for found, wanted in zip(output_types(symbolic.call.checked_type), expected, strict=True):
            assert found.dtype == wanted.dtype
            for dim, size in zip(found.shape, wanted.shape, strict=True):
                if not isinstance(size, AnyDim):
                    assert substitute_dim(dim, symbolic.sizes) == size, (number, str(found))
    assert bool(symbols) == (bool(sizes) and name not in FIXED)
