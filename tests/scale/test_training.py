"""Ranks that are processes have the curve of one rank with the larger batch."""

import json

import numpy as np
import pytest

from tests.scale import ranks
from tests.unit.distributed import training
from tests.unit.distributed.test_data_parallel import sgd

pytestmark = pytest.mark.torch

TRAIN = """
import json, sys
import weft.distributed
from tests.unit.distributed import training
from tests.unit.distributed.test_data_parallel import train
world = weft.distributed.init(deterministic=sys.argv[2] == "deterministic")
losses, values, buckets = train(world, sys.argv[1])
print(json.dumps([losses, {n: v.tobytes().hex() for n, v in values.items()}]), flush=True)
"""


@pytest.mark.sample(0.1, least=1)
@pytest.mark.parametrize("mode", ["deterministic", "rounded"])
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
@pytest.mark.parametrize("count", [2, 4])
def test_the_curve(count, kind, mode):
    losses, expected = training.one_rank(kind, sgd, count)
    larger, _ = training.one_rank(kind, sgd, 1)
    for code, out, err in ranks.finish(ranks.start(count, TRAIN, kind, mode)):
        assert code == 0, err
        found, parameters = json.loads(out)
        np.testing.assert_allclose(found, larger, rtol=1e-5)
        if mode == "deterministic":
            assert np.float32(found).tobytes() == np.float32(losses).tobytes()
            assert {n: v.tobytes().hex() for n, v in expected.items()} == parameters
