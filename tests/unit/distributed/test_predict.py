"""Predicted times of a step on more devices than there are."""

from __future__ import annotations

import pytest

import weft
from weft.distributed import Link, Mesh, Sharding, ShardingPlan, shard
from weft.support.errors import OptionError

STEP = """
def @main(%x: Tensor[(64, 32), float32], %w: Tensor[(32, 32), float32]) {
  let %h = nn.relu(nn.dense(%x, %w));
  (sum(%h, axis=[0]), exp(%h))
}"""


def plan(link: Link | None = None) -> ShardingPlan:
    links = {} if link is None else dict.fromkeys(("data", "model"), link)
    return shard(weft.parse(STEP), Mesh({"data": 2, "model": 1}, links),
                 {"x": Sharding.of("data", None)})


def test_slower_links_take_longer_and_what_does_not_fit_says_why() -> None:
    fast, slow = (plan(link).predict([2, 8, 128], target="llvm -mcpu=x86-64-v3").rows
                  for link in (Link(1e12, 0.0), Link(1e6, 1e-3)))
    for quick, late in zip(fast[:2], slow[:2], strict=True):
        assert quick.ideal == late.ideal
        assert quick.ideal < quick.seconds
        assert quick.computing == late.computing
        assert quick.exchanging < late.exchanging
        assert late.seconds > 2e-3
    assert fast[0].ideal == 4 * fast[1].ideal
    assert fast[2].why == "the mesh axes data do not divide dimension 0"


def test_what_runs_behind_a_collective_hides_it() -> None:
    """The exponentials need no sum, and take longer than the exchange of 128 bytes."""
    hidden, late = (plan(Link(rate, 0.0)).predict([2], target="llvm -mcpu=x86-64-v3").rows[0]
                    for rate in (1e9, 1e6))
    assert hidden.nbytes == late.nbytes == 128
    assert hidden.seconds == pytest.approx(hidden.computing)
    assert 0 < late.exchanging < 128e-6


def test_a_table_and_bars() -> None:
    found = plan(Link(1e9, 1e-6)).predict([2, 128])
    assert "no plan because" in str(found)
    assert "2 devices" in found.svg()
    assert "128 devices" not in found.svg()


def test_a_mesh_without_links_is_refused() -> None:
    with pytest.raises(OptionError, match="needs the links along data, model"):
        plan().predict()
    with pytest.raises(OptionError, match="no axis 'rows'"):
        plan(Link(1.0)).predict(axis="rows")
