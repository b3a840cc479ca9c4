"""Plans of a mesh with links weigh what an exchange costs against the computing that it saves."""

from __future__ import annotations

import pytest

import weft
from weft.distributed import Link, Mesh, Sharding, ShardingPlan, shard

MODEL = """
def @main(%x: Tensor[(512, 1024), float32], %up: Tensor[(4096, 1024), float32],
          %down: Tensor[(1024, 4096), float32]) {
  add(nn.dense(nn.relu(nn.dense(%x, %up)), %down), %x)
}"""
WHOLE = Sharding.replicated(2)


def plan(link: Link | None, text: str = MODEL, **shardings: Sharding) -> ShardingPlan:
    return shard(weft.parse(text), Mesh({"m": 4}, {} if link is None else {"m": link}),
                 shardings or {"x": WHOLE}, outputs=[WHOLE], target="llvm -mcpu=x86-64-v3")


def test_computing_is_cut_where_the_exchange_costs_less_than_it_saves() -> None:
    fast, slow = plan(Link(12.5e9, 5e-6)), plan(Link(1e7, 1e-4))
    assert fast.part.computing == pytest.approx(slow.part.computing / 4, rel=0.05)
    assert fast.part.exchanging > 0 == slow.part.exchanging
    assert {d.choice.parts for d in slow.part.decisions} == {1}
    assert fast.part.because.startswith("cut further than the shardings say: computes ")
    assert slow.part.because.startswith("cut as the shardings say: to cut more calls would ")


def test_without_links_only_bytes_count() -> None:
    found = plan(None)
    assert found.part.computing == found.bytes_received == 0
    assert not found.part.because


def test_a_gathered_operand_is_weighed_against_parts_of_the_work() -> None:
    """The sum of partial products is larger than the operands, but each device computes less."""
    text = """
    def @main(%a: Tensor[(256, 8192), float32], %b: Tensor[(256, 8192), float32]) {
      nn.dense(%a, %b)
    }"""
    cut = Sharding.of(None, "m")
    quick, slow = (plan(Link(rate, 0.0), text, a=cut, b=cut) for rate in (1e11, 1e4))
    for found in (quick, slow):
        assert found.part.decisions[0].choice.parts == 4
    text = text.replace("256, 8192", "2048, 4")
    late = plan(Link(1e6, 0.0), text, a=cut, b=cut).part.decisions[0]
    assert late.choice.parts == 1
    assert "4 parts would compute" in late.because


def test_explanations_show_both_times_of_each_call() -> None:
    text = str(plan(Link(12.5e9, 5e-6)).explain())
    for word in ("computing us", "exchange us", "all_gather", "cut further"):
        assert word in text
    assert "computing us" in str(plan(None).explain())


def test_predictions_have_the_times_of_each_step() -> None:
    row, = plan(Link(12.5e9, 5e-6)).predict([4], target="llvm -mcpu=x86-64-v3").rows
    assert [s.step.split()[0] for s in row.steps] == ["compute", "start", "wait"]
    assert row.steps[-1].end == row.seconds
    assert sum(s.nbytes for s in row.steps) == row.nbytes
    assert "takes us" in str(row)
