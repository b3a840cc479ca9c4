"""Random nests of transformations over random programs with control flow, closures, detachment.

The truth is what torch's recorded gradients give for the same program in Python. Nothing may be
refused. ``WEFT_FUZZ_EXAMPLES=3000`` runs that many nests instead of a few.
"""

import os
import random

import numpy as np
import pytest

import weft
from tests.unit.transform.autodiff.nests import (
    PLAIN,
    TRANSFORMATIONS,
    nest,
    program,
    torch_function,
    torch_nest,
    transformed,
)
from tests.unit.transform.test_random_language import _check_slopes
from weft.transform.analysis.reference import evaluate

COUNT = int(os.environ.get("WEFT_FUZZ_EXAMPLES", "0"))


def arguments(seed):
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.2, 1.2, 2), rng.uniform(0.2, 1.2, 2), np.int32(seed % 4)]


@pytest.mark.torch
@pytest.mark.parametrize("part", range(5))
def test_nests_are_those_of_torch(part):
    import torch

    for seed in range(part, COUNT or 40, 5):
        rng = random.Random(seed)
        (text, python), names = program(rng), nest(rng)
        x, y, n = arguments(seed)
        found = evaluate(transformed(text, names), [x, y, n])
        truth = torch_nest(torch_function(python), names)
        expected = truth(torch.tensor(x), torch.tensor(y), int(n)).detach().numpy()
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9,
                                   err_msg=f"seed {seed}: {names} of\n{python}")


@pytest.mark.parametrize("name", TRANSFORMATIONS)
def test_transformed_programs_have_gradients(name):
    """Slopes of a transformed program, without detachment, which slopes do not see."""
    text, _ = program(random.Random(f"{name} 4"), 3, PLAIN)
    _check_slopes(transformed(text, [name]), arguments(2))


@pytest.mark.parametrize("names", [["gradient", "batch_of_steps"], ["batch_of_steps", "hessian"]],
                         ids="-".join)
def test_compiled_nests_are_those_of_the_interpreter(names):
    text, _ = program(random.Random(8), 3)
    mod, values = transformed(text, names), arguments(1)
    np.testing.assert_allclose(weft.compile(mod)(*values), evaluate(mod, values), rtol=1e-9)
