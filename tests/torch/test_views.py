"""Views and writes in place through torch.compile: layout, memory and values are those of torch."""

from __future__ import annotations

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from tests.torch.random_programs import (  # noqa: E402 - needs torch
    difference,
    draw_program,
    inputs_of,
    run,
)

LAYOUTS = ("dense", "transposed", "offset", "expanded", "aliased")


def write_to_view(t):
    t[1:].mul_(2)
    return t[0] + 1


def view_of_another_output(t):
    y = t * 2
    return y, y[1:], y.view(-1)[::2]


def equal_outputs(t):
    return t + 1, t + 1, (t + 1).clone(), torch.ones(3), torch.ones(3)


PROGRAMS = {
    "second half": lambda t: t[t.shape[0] // 2:],
    "second half of a result": lambda t: (t * 2)[t.shape[0] // 2:],
    "chunk": lambda t: (t.sin().chunk(2)[-1], t.chunk(2)[-1]),
    "narrow": lambda t: t.sin().narrow(0, 1, t.shape[0] - 1),
    "view": lambda t: (t + 1).reshape(t.shape[1], -1).t(),
    "expand": lambda t: (t + 1).unsqueeze(0).expand(3, -1, -1),
    "transposed result": lambda t: t.t().sin() + 1,
    "split": lambda t: (t + 1).split(2),
    "write to a view of an input": write_to_view,
    "view of another output": view_of_another_output,
    "equal outputs": equal_outputs,
    "an input and a view of it": lambda t: (t, t[1:], t.t()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_outputs_lie_as_torch_has_them(name, dynamic):
    torch._dynamo.reset()
    function = PROGRAMS[name]

    def listed(t):
        made = function(t)
        return made if isinstance(made, (tuple, list)) else (made,)

    compiled = torch.compile(listed, dynamic=dynamic, backend=weft.torch_backend)
    for size in (5, 4, 7) if dynamic else (5,):
        make = inputs_of("dense", 0)
        assert difference(run(compiled, make(size)[:1]), run(listed, make(size)[:1])) == ""


def agree(seed: int) -> str:
    """How weft differs on a random program, unless torch's own tracing does too."""
    torch._dynamo.reset()
    rng = np.random.default_rng(seed)
    dynamic = bool(rng.integers(2))
    sizes = (5, 4, 6) if dynamic else (5,)
    make = inputs_of(LAYOUTS[rng.integers(len(LAYOUTS))], seed, grad=bool(rng.integers(2)))
    program = draw_program(rng, make, sizes, int(rng.integers(2, 9)))
    function = program.function()
    try:
        expected = [run(function, make(size)) for size in sizes]
        traced = torch.compile(function, backend="aot_eager", dynamic=dynamic)
        plain = [run(traced, make(size)) for size in sizes]
    except Exception:  # noqa: BLE001 - gradients, or a trace, that torch itself refuses
        return ""
    compiled = torch.compile(function, backend=weft.torch_backend, dynamic=dynamic)
    torch._dynamo.reset()
    for size, wanted, other in zip(sizes, expected, plain, strict=True):
        found = difference(run(compiled, make(size)), wanted)
        if found and not difference(other, wanted):
            return f"seed {seed}\n{program}\n{found}"
    return ""


@pytest.mark.sample(0.3)
@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    assert agree(seed) == ""
