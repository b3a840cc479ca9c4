"""Stacks at the boundary of a region: results written in place, items read in place."""

from __future__ import annotations

import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

from weft.compiler.integrations.torch import stacks  # noqa: E402
from weft.compiler.integrations.torch.partition import partition  # noqa: E402

aten = torch.ops.aten
STRICT = weft.torch_backend(strict=True)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def saved(monkeypatch):
    """What the forward graphs of a test save, as nodes."""
    found = []

    def spy(joint, inputs, *, num_fwd_outputs, **options):
        forward, backward = partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        outputs = next(n for n in forward.graph.nodes if n.op == "output").args[0]
        found.extend(n for n in outputs[num_fwd_outputs:] if n.op == "call_function")
        return forward, backward

    monkeypatch.setattr("weft.compiler.integrations.torch.backend.partition", spy)
    return found


@pytest.fixture
def boundaries(monkeypatch):
    """The regions of a test that were opened."""
    found, known = [], stacks.opened

    def spy(graph, weights):
        found.append(known(graph, weights))
        return found[-1]

    monkeypatch.setattr("weft.compiler.integrations.torch.specialize.opened", spy)
    return found


def recurrence(x, w):
    h = torch.zeros_like(x[0])
    for step in x.unbind(0):
        h = torch.sigmoid(step + torch.tanh(h @ w))
    return h.square().sum()


def gradients(function, *values):
    values = [value.clone().requires_grad_() for value in values]
    return [function(*values).detach(), *torch.autograd.grad(function(*values), values)]


def test_the_steps_of_a_recurrence_are_saved_as_stacks(saved, boundaries):
    values = torch.randn(6, 4, 16), torch.randn(16, 16)
    own = gradients(torch.compile(recurrence, backend=STRICT), *values)
    torch.testing.assert_close(own, gradients(recurrence, *values), rtol=1e-4, atol=1e-5)
    stacked = [n for n in saved if n.target is aten.stack.default]
    assert stacked
    assert len(saved) < 6
    forward, backward = boundaries
    assert sum(forward.operands) == sum(len(n.args[0]) for n in stacked) >= 8
    assert set(forward.operands) <= set(backward.items)  # none of them is copied to its stack


def test_results_of_earlier_steps_keep_their_memory():
    """Two forwards may run before the backwards do."""
    step = torch.compile(recurrence, backend=STRICT)
    values = [[torch.randn(6, 4, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)]
              for _ in range(3)]
    losses = [step(*pair) for pair in values]
    for loss, pair in zip(losses, values, strict=True):
        own = torch.autograd.grad(loss, pair)
        torch.testing.assert_close(own, torch.autograd.grad(recurrence(*pair), pair), rtol=1e-4,
                                   atol=1e-5)


def test_tensors_are_saved_one_by_one_where_other_sizes_vary(saved, monkeypatch):
    """A program for all sizes would copy them to their stack."""
    monkeypatch.setattr("weft.compiler.integrations.torch.partition._LEAST_STACKED", 2)
    values = torch.randn(3, 4, 16), torch.randn(16, 16), torch.randn(5)

    def function(x, w, y):
        return recurrence(x, w) * y.sin().sum()

    def marked(*values):
        torch._dynamo.mark_dynamic(values[2], 0)
        return compiled(*values)

    compiled = torch.compile(function, backend=STRICT)
    own = gradients(marked, *values)
    torch.testing.assert_close(own, gradients(function, *values), rtol=1e-4, atol=1e-5)
    assert sum(isinstance(n.meta["val"], torch.Tensor) for n in saved) > 2
    assert not any(n.target is aten.stack.default for n in saved)


def items(x):
    return [part.exp() for part in x.unbind(0)[1:]]


STACKS = {
    "results": (lambda x, y: torch.stack([x + y, x * y, x - y]), ((3, 5), (3, 5))),
    "arguments and repeats": (lambda x, y: torch.stack([x, y, (s := x + y), s, y]), ((4,), (4,))),
    "also a result": (lambda x, y: ((s := x * y), torch.stack([s, y.exp()]), x - 1), ((2, 3),) * 2),
    "two": (lambda x, y: (torch.stack([x + 1, y + 2]), torch.stack([x * y, x / y])), ((6,), (6,))),
    "numbers": (lambda x, y: torch.stack([x.sum(), y.sum()]), ((6,), (6,))),
    "other axis": (lambda x, y: torch.stack([x + 1, y + 2], 1), ((2, 3), (2, 3))),
    "used inside": (lambda x, y: torch.stack([x + 1, y + 2]).sum(0) + 1, ((2, 3), (2, 3))),
    "items": (items, ((4, 3),)),
    "transposed items": (lambda x: items(x.t()), ((4, 3),)),
    "items in a stack": (lambda x: torch.stack([x.exp() for x in x.unbind(0)]), ((5, 2, 3),)),
}


@pytest.mark.parametrize("name", STACKS)
def test_regions_with(name):
    function, shapes = STACKS[name]
    values = [torch.randn(shape) for shape in shapes]
    torch.testing.assert_close(torch.compile(function, backend=STRICT)(*values),
                               function(*values))


def test_bfloat16_items_are_passed_in_place(boundaries):
    x = torch.randn(4, 8, dtype=torch.bfloat16)
    function = torch.compile(lambda x: torch.stack([x + 1 for x in x.unbind(0)]), backend=STRICT)
    torch.testing.assert_close(function(x), x + 1)
    assert [(b.items, b.operands) for b in boundaries] == [((4,), (4,))]
