"""A tensor-parallel block on ranks that are processes gives the bits of all parts on one device."""

import pytest

from tests.scale import ranks

pytestmark = pytest.mark.torch

CHECK = """
import numpy as np, weft
from tests.unit.distributed.test_rank_module import BLOCK, TENSOR_PARALLEL, run_plan
from weft.distributed import Mesh, init, shard
world = init(deterministic=True)
plan = shard(weft.parse(BLOCK), Mesh({"model": world.size}), TENSOR_PARALLEL)
rng = np.random.default_rng(0)
arrays = [rng.normal(size=p.checked_type.concrete_shape).astype("float32")
          for p in plan.module["main"].params]
(found,) = run_plan(world, plan, arrays)
assert (found == plan.compile()(*arrays)).all()
print("equal", world.rank, flush=True)
"""


def test_gloo():
    for rank, (code, out, err) in enumerate(ranks.finish(ranks.start(2, CHECK))):
        assert code == 0, err
        assert out.split("\n")[0] == f"equal {rank}"
