"""The allocation budget, and that front ends ask it."""

import ast
from pathlib import Path

import pytest

import weft
from weft.support.allocation import (
    BUDGET_BYTES,
    AllocationBudget,
    allocation_budget,
    check_allocation,
    may_allocate,
)
from weft.support.errors import UnsupportedModelError

_MAKERS = {"arange", "empty", "eye", "full", "identity", "indices", "linspace", "logspace", "ones",
           "pad", "repeat", "tile", "tri", "zeros"}


def test_a_budget_is_used_up():
    budget = AllocationBudget(100)
    assert budget.grants(60)
    assert not budget.grants(41)
    assert budget.grants(40)
    assert not budget.grants(1)


def test_nested_blocks_share_one_budget():
    half = (BUDGET_BYTES // 2,)
    with allocation_budget():
        assert may_allocate(half, 1)
        with allocation_budget():
            assert may_allocate(half, 1)
        assert not may_allocate((1,), 1)
    assert may_allocate(half, 2)


def test_an_error_names_the_shape_and_the_bytes():
    with pytest.raises(UnsupportedModelError, match=r"shape \(3, 1099511627776\)"):
        check_allocation((3, 1 << 40), 8)


def _calls_of_numpy(path: Path) -> list[str]:
    """The calls in a file that make an array of more than one element by NumPy itself."""
    return [f"{path}:{node.lineno} np.{node.func.attr}"
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name) and node.func.value.id == "np"
            and node.func.attr in _MAKERS and not _is_short(node)]


def _is_short(call: ast.Call) -> bool:
    """Whether the sizes are written down, or are the number of items of a list."""
    sizes = call.args[0] if call.args else call
    return (isinstance(sizes, (ast.Constant, ast.Tuple)) and not ast.dump(sizes).count("Name")) \
        or ast.unparse(sizes).startswith("len(")


def test_front_ends_make_arrays_within_the_budget():
    folder = Path(weft.__file__).parent / "frontend"
    found = [call for path in sorted(folder.rglob("*.py")) if path.name != "arrays.py"
             for call in _calls_of_numpy(path)]
    # It asks the budget itself, and makes a call of ``full`` if nothing is left.
    assert [call for call in found if "ops/constant.py" not in call] == []
