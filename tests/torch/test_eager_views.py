"""Views of ``weft.Tensor``, writes through them and their gradients against torch."""

from __future__ import annotations

import os

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from tests.torch.eager_programs import (  # noqa: E402 - needs torch
    attempt,
    differences,
    draw,
    gradient_differences,
    leaves,
)

SEEDS = range(int(os.environ.get("WEFT_FUZZ_EXAMPLES", "60")))


def disagreement(seed: int, *, stepwise: bool) -> str:
    """How weft differs from torch on a random program, whose values are all looked at after each
    line, or some now and then.
    """
    program = draw(seed, 4 + seed % 9)
    theirs, mine = program.inputs(torch), program.inputs(weft)
    rng = np.random.default_rng(seed)
    for line in program.lines:
        theirs, mine = attempt(line, torch, theirs), attempt(line, weft, mine)
        looked = slice(None) if stepwise else slice(
            at := int(rng.integers(len(mine))), at + int(rng.random() < 0.3))
        found = differences(mine[looked], theirs[looked])
        if found:
            return f"seed {seed}\n{program}\nafter {line}: {found}"
    found = differences(mine, theirs)
    expected = leaves(theirs, torch)
    if expected and not found:
        found = gradient_differences(leaves(mine, weft), expected)
    return f"seed {seed}\n{program}\n{found}" if found else ""


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_agree_with_torch(seed):
    assert disagreement(seed, stepwise=seed % 10 > 0) == ""


@pytest.mark.parametrize("seed", [3, 14, 27, 31])
def test_recorded_execution_equals_execution_line_by_line(seed):
    program = draw(seed, 14)
    recorded, stepwise = program.inputs(weft), program.inputs(weft)
    for line in program.lines:
        recorded = attempt(line, weft, recorded)
        stepwise = attempt(line, weft, stepwise)
        assert all(value.detach().numpy() is not None for value in stepwise)
    assert differences(recorded, stepwise) == []
    assert gradient_differences(leaves(recorded, weft), leaves(stepwise, weft)) == []


def test_after_a_write_torch_spreads_gradients_over_elements_of_a_leaf_that_overlap():
    def gradients(lib, *, is_written):
        leaf = lib.ones(1).expand(2).detach().requires_grad_()
        part = leaf[0]
        if is_written:
            with lib.no_grad():
                part.mul_(1)
        part.backward()
        return leaf.grad.tolist()

    # The same function of the same values: torch differs from itself.
    assert [gradients(torch, is_written=w) for w in (False, True)] == [[1, 0], [0.5, 0.5]]
    assert [gradients(weft, is_written=w) for w in (False, True)] == [[1, 0], [1, 0]]


def test_wrong_indices_are_refused_also_where_the_result_is_empty():
    assert torch.ones(1, 0)[[5]].shape == (1, 0)
    with pytest.raises(RuntimeError):  # torch refuses the same by name
        torch.ones(1, 0).index_select(0, torch.tensor([5]))
    for index in (lambda x: x[[5]], lambda x: x.index_select(0, weft.tensor([5]))):
        with pytest.raises(IndexError, match="5 is out of range"):
            index(weft.ones(1, 0))
