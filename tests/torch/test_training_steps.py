"""Training through ``torch.compile(backend="weft")``: steps of whole models, beside torch."""

from __future__ import annotations

import copy
import warnings
from contextlib import nullcontext

import pytest

import weft

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
nn, F = torch.nn, torch.nn.functional

from torch.utils.checkpoint import checkpoint  # noqa: E402

from benchmarks.training_zoo import TRAININGS, loss_of  # noqa: E402
from weft.compiler.integrations.torch import left_to_torch  # noqa: E402
from weft.compiler.integrations.torch.partition import partition  # noqa: E402

STRICT = weft.torch_backend(strict=True)


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        yield
    torch._dynamo.reset()


class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        return loss_of(self.model, x, y)


def trained(name, compiled, steps):
    """The losses of a model of the zoo; the gradients and buffers after the first step."""
    training = TRAININGS[name]
    model = WithLoss(training.module())
    step = torch.compile(model, backend=STRICT) if compiled else model
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    losses, first = [], None
    for number in range(steps):
        optimizer.zero_grad()
        loss = step(*training.batch(4, number % 3, False))
        loss.backward()
        first = first or ({n: p.grad.clone() for n, p in model.named_parameters()},
                          {n: b.clone() for n, b in model.named_buffers()})
        optimizer.step()
        losses.append(loss.item())
    return losses, *first


@pytest.mark.sample(0.2, 1)
@pytest.mark.slow
@pytest.mark.parametrize("name", TRAININGS)
def test_losses_and_gradients_are_those_of_torch(name):
    with left_to_torch() as reports:
        losses, gradients, buffers = trained(name, True, 6)
    assert [(r.kind, r.regions, r.is_whole) for r in reports] == [("forward", 1, True),
                                                                  ("backward", 1, True)]
    expected, others, statistics = trained(name, False, 6)
    assert losses == pytest.approx(expected, rel=1e-4)
    scale = max(g.abs().max().item() for g in others.values())
    for key, gradient in others.items():
        torch.testing.assert_close(gradients[key], gradient, rtol=0, atol=1e-4 * scale)
    torch.testing.assert_close(buffers, statistics, rtol=1e-4, atol=1e-5)


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


def mean_square(model):
    return lambda x: model(x).square().mean()


def first_result(model):
    return lambda x: model(x)[0].square().mean()


def checkpointed(model):
    """The first layers are computed again by the backward."""
    def run(x):
        inner = checkpoint(lambda y: F.dropout(torch.sin(model[0](y)), 0.25), x,
                           use_reentrant=False)
        return model[2](inner).square().mean()

    return run


def with_constant_scale(model):
    def run(x):
        h = model(x)
        with torch.no_grad():
            scale = h.abs().mean()
        return (h / scale).square().mean() + h.sum()

    return run


def aliasing(model):
    """A view is written to, and another view of the same memory read."""
    def run(x):
        h = model[0](x)
        flat, left = h.view(-1), h[:, :4]
        left.mul_(2)
        return (flat.sum() * left.sum()).tanh() + model[2](model[1](h)).mean()

    return run


def images(*layers):
    return lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), *map(copy.deepcopy, layers))


ROWS = (torch.randn(4, 8), torch.randn(4, 8))
IMAGES = (torch.randn(2, 3, 8, 8),)
WORDS = (torch.randint(0, 10, (4, 6)),)
CASES = {
    "accumulation": (mlp, mean_square, tuple(torch.randn(4, 8) for _ in range(4)), 2),
    "dropout": (lambda: nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.4), nn.Linear(16, 3)),
                mean_square, ROWS, 1),
    "batch norm": (images(nn.BatchNorm2d(4), nn.ReLU()), mean_square, IMAGES, 1),
    "pooling": (images(nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)), mean_square, IMAGES, 1),
    "embedding": (lambda: nn.Sequential(nn.Embedding(10, 8, padding_idx=0), nn.Linear(8, 3)),
                  mean_square, WORDS, 1),
    "recurrence": (lambda: nn.LSTM(8, 5, batch_first=True), first_result,
                   (torch.randn(2, 4, 8),), 1),
    "checkpointing": (mlp, checkpointed, ROWS, 1),
    "no_grad": (mlp, with_constant_scale, ROWS, 1),
    "aliasing": (mlp, aliasing, ROWS, 1),
    "batch sizes": (mlp, mean_square, tuple(torch.randn(n, 8) for n in (4, 6, 9, 4)), 1),
    "bfloat16": (mlp, mean_square, ROWS, 1),
}


def outcome(name, backend, steps=3):
    make, function, inputs, accumulated = CASES[name]
    torch._dynamo.reset()
    torch.manual_seed(5)
    model = make()
    step = torch.compile(function(model), backend=backend)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    is_narrow = name == "bfloat16"
    losses = []
    for number in range(steps):
        optimizer.zero_grad()
        for part in range(accumulated):
            torch.manual_seed(100 * number + part)
            with torch.autocast("cpu", torch.bfloat16) if is_narrow else nullcontext():
                loss = step(inputs[(number * accumulated + part) % len(inputs)])
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, dict(model.state_dict()), [p.grad for p in model.parameters()]


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("name", CASES)
def test_steps_with(name):
    tolerance = 2e-2 if name == "bfloat16" else 2e-4
    losses, state, gradients = outcome(name, STRICT)
    peer = "eager" if name == "recurrence" else "aot_eager"  # which cannot save None
    expected, other, wanted = outcome(name, peer)
    assert losses == pytest.approx(expected, rel=tolerance)
    torch.testing.assert_close(state, other, rtol=tolerance, atol=tolerance)
    scale = max(g.abs().max().item() for g in wanted)
    torch.testing.assert_close(gradients, wanted, rtol=0, atol=tolerance * scale)


def test_parameters_are_not_copied_and_gradients_are_new():
    """An optimiser of torch changes the memory that the program reads at its next call."""
    model = mlp()
    step = torch.compile(mean_square(model), backend=STRICT)
    x = ROWS[0]
    before = step(x)
    addresses = [p.data_ptr() for p in model.parameters()]
    before.backward()
    first = [p.grad for p in model.parameters()]
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.5)
    assert [p.data_ptr() for p in model.parameters()] == addresses
    torch.testing.assert_close(step(x), mean_square(model)(x))
    copies = [g.clone() for g in first]
    for p in model.parameters():
        p.grad = None
    step(x).backward()
    torch.testing.assert_close(first, copies)  # no memory of the program was handed out


def test_the_partition_saves_less_than_all_that_is_read():
    """The result of a ReLU is saved or computed again, and statistics are joined."""
    saved = []

    def spy(joint, inputs, *, num_fwd_outputs, **options):
        forward, backward = partition(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        outputs = next(n for n in forward.graph.nodes if n.op == "output").args[0]
        saved.extend(n for n in outputs[num_fwd_outputs:] if n.op != "placeholder")
        return forward, backward

    layers = [part for _ in range(4) for part in (nn.Conv2d(4, 4, 3, padding=1),
                                                  nn.BatchNorm2d(4), nn.ReLU())]
    model = nn.Sequential(*layers)
    x = torch.randn(2, 4, 16, 16, requires_grad=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.compiler.integrations.torch.backend.partition", spy)
        torch.compile(mean_square(model), backend=STRICT)(x).backward()
    names = [n.name for n in saved]
    assert sum(name.startswith("cat") for name in names) == 1
    assert sum(n.meta["val"].numel() * 4 for n in saved) < 9 * x.numel() * 4
    own, x.grad = x.grad, None
    mean_square(model)(x).backward()
    torch.testing.assert_close(own, x.grad, rtol=1e-3, atol=1e-6)


def test_other_devices_are_left_to_torch_or_refused():
    model = nn.Linear(3, 3)

    def on_meta(x):
        return model(x).sum() + torch.ones(2, device="meta").sum().to("cpu")

    with pytest.raises(Exception, match=r"meta|strict|device|not support"), \
            warnings.catch_warnings():
        torch.compile(on_meta, backend=STRICT)(torch.ones(1, 3)).backward()
