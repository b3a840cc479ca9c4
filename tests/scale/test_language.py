"""A language model in stages, or with layers cut over processes, has the losses of one rank."""

import json

import numpy as np
import pytest

import weft.distributed
from examples.train_language_on_many import main
from tests.scale import ranks

pytestmark = pytest.mark.torch

TRAIN = """
import sys
from examples.train_language_on_many import main
main(["--parallel", sys.argv[1], "--steps", "3", "--batch-size", "8"])
"""


@pytest.mark.sample(0.5, least=1)
@pytest.mark.parametrize("parallel", ["pipeline", "tensor"])
def test_the_losses(parallel):
    first, second = ranks.finish(ranks.start(2, TRAIN, parallel))
    for code, _, err in (first, second):
        assert code == 0, err
        assert "Warning" not in err
    assert not first[1]
    expected = main(["--parallel", parallel, "--steps", "3", "--batch-size", "8"])
    weft.distributed.finish()
    assert expected[-1] < expected[0]
    np.testing.assert_allclose(json.loads(second[1]), expected, rtol=1e-5)
