"""What weft does not take runs in torch: never the end of a program of torch.compile."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
nn = torch.nn

from weft.compiler.integrations.torch import region  # noqa: E402 - needs torch
from weft.compiler.integrations.torch.fallback import (  # noqa: E402
    FallbackWarning,
    left_to_torch,
)
from weft.support.errors import InternalError, UnsupportedModelError  # noqa: E402

quiet = pytest.mark.filterwarnings("ignore::weft.FallbackWarning")


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def mixed(x):
    first, second = (torch.linalg.ldl_factor_ex(y)[0] for y in (x + 1, x * 2))
    return torch.relu(first) * 2 + second


def test_one_warning_lists_what_torch_runs():
    compiled = torch.compile(mixed, backend=weft.torch_backend)
    x = torch.randn(4, 4)
    with left_to_torch() as reports, pytest.warns(FallbackWarning) as caught:
        torch.testing.assert_close(compiled(x), mixed(x))
    assert len(caught) == 1
    assert str(caught[0].message).count("linalg_ldl_factor_ex") == 1
    assert "aten.linalg_ldl_factor_ex.default: 2 times" in str(caught[0].message)
    (report,) = reports
    assert (report.left["aten.linalg_ldl_factor_ex.default"], report.regions) == (2, 2)
    assert not report.is_whole
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)  # warned once


@pytest.mark.parametrize("backend", [weft.torch_backend(strict=True), weft.torch_backend])
def test_an_error_for_those_who_want_one(backend):
    options = {} if backend is not weft.torch_backend else {"strict": True}
    compiled = torch.compile(mixed, backend=backend, options=options)
    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed,
                       match=r"linalg_ldl_factor_ex[.]default: 2"):
        compiled(torch.randn(4, 4))


def test_no_warning_where_weft_takes_everything():
    with left_to_torch() as reports:
        torch.compile(lambda x: x.sin() + 1, backend=weft.torch_backend)(torch.ones(3))
    assert [r.is_whole for r in reports] == [True]


class Tagged(torch.Tensor):
    """A tensor of a class of the user's."""


def in_bfloat16(x):
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ x).float() + 1


OTHERS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "complex": (lambda x: torch.view_as_real(x * 2).sin(),
                lambda: (torch.randn(3, dtype=torch.complex64),)),
    "a conjugate": (lambda x: (x.conj() * 2).imag + 1,
                    lambda: (torch.randn(3, dtype=torch.complex64),)),
    "sparse": (lambda x, y: (x @ y).relu(),
               lambda: (torch.eye(3).to_sparse(), torch.randn(3, 3))),
    "float8": (lambda x: x.to(torch.float8_e4m3fn).to(torch.float32) * 2,
               lambda: (torch.randn(5),)),
    "a subclass": (lambda x: (x * 2).sin(), lambda: (torch.randn(3).as_subclass(Tagged),)),
    "meta": (lambda x: (x.sin(), torch.empty(2, 3, device="meta").sum(0)),
             lambda: (torch.randn(3),)),
    "sizes that data decides": (lambda x: x[x > 0].sum() + x.nonzero().sum(),
                                lambda: (torch.randn(9),)),
    "a number that data decides": (lambda x: x[: int(x[0])] * 2,
                                   lambda: (torch.arange(3, 8),)),
    "fft": (lambda x: torch.fft.rfft(x.sin()).abs() + 1, lambda: (torch.randn(8),)),
    "histc": (lambda x: torch.histc(x * 2, 4) * 2, lambda: (torch.randn(8),)),
    "empty": (lambda x: torch.empty(0, 3) @ x, lambda: (torch.randn(3, 2),)),
    "empty_permuted": (lambda x: torch.empty_permuted((2, 3), (1, 0)).copy_(x) + 1,
                       lambda: (torch.randn(2, 3),)),
    "cond": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)) + 1,
             lambda: (torch.ones(3),)),
    "autocast": (in_bfloat16, lambda: (torch.ones(3, 3),)),
}


@quiet
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHERS)
def test_what_weft_does_not_take(name):
    function, inputs = OTHERS[name]
    got = torch.compile(function, backend=weft.torch_backend)(*inputs_of(inputs))
    torch.testing.assert_close(got, function(*inputs_of(inputs)), rtol=1e-4, atol=1e-5)


def inputs_of(make: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
    torch.manual_seed(0)
    return make()


@pytest.mark.parametrize("when", ["compiling", "running"])
def test_a_region_that_weft_refuses_runs_in_torch(when, monkeypatch):
    def fail(*_: Any, **__: Any) -> Any:
        raise UnsupportedModelError("not this one", help="write another")

    made = fail if when == "compiling" else lambda *_: fail
    monkeypatch.setattr(region, "specialize", made)
    compiled = torch.compile(torch.sin, backend=weft.torch_backend)
    with left_to_torch() as reports, \
            pytest.warns(FallbackWarning, match="not this one") as caught:
        got = compiled(torch.ones(3)), compiled(torch.ones(3))
    torch.testing.assert_close(got, (torch.ones(3).sin(), torch.ones(3).sin()))
    assert len(caught) == 1
    (listed,) = reports[0].log.found
    assert listed.cure == "write another"
    strict = torch.compile(torch.cos, backend=weft.torch_backend(strict=True))
    with pytest.raises(UnsupportedModelError, match="not this one"):
        strict(torch.ones(3))


@pytest.mark.parametrize("error", [InternalError, ZeroDivisionError])
@pytest.mark.parametrize("when", ["compiling", "running"])
def test_a_defect_of_weft_is_no_reason_to_run_in_torch(when, error, monkeypatch):
    def fail(*_: Any, **__: Any) -> Any:
        raise error("of weft's own")

    made = fail if when == "compiling" else lambda *_: fail
    monkeypatch.setattr(region, "specialize", made)
    with pytest.raises(error, match="of weft's own"):
        torch.compile(torch.sin, backend=weft.torch_backend)(torch.ones(3))


@quiet
def test_random_numbers_are_drawn_in_the_order_of_the_program():
    def function(x):
        late = torch.rand(3)
        early = torch.linalg.ldl_factor_ex(torch.rand_like(x) + x.sin())[0]
        return early + nn.functional.dropout(x.sum(0), 0.5), late + torch.randn(3)

    x = torch.randn(3, 3)
    results = []
    for backend in (weft.torch_backend, "aot_eager"):
        torch._dynamo.reset()
        torch.manual_seed(7)
        results.append(torch.compile(function, backend=backend)(x))
    torch.testing.assert_close(*results)


def test_weights_that_an_optimiser_changes_are_seen_and_not_copied(monkeypatch):
    net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    other = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    other.load_state_dict(net.state_dict())
    seen: set[int] = set()
    plain = region.specialize

    def watched(*args: Any) -> Any:
        run = plain(*args)
        return lambda values: seen.update(v.data_ptr() for v in values) or run(values)

    monkeypatch.setattr(region, "specialize", watched)
    compiled = torch.compile(net, backend=weft.torch_backend(strict=True))
    losses = []
    for model, parameters in ((compiled, net), (other, other)):
        optimiser = torch.optim.Adam(parameters.parameters(), lr=0.05)
        torch.manual_seed(1)
        for _ in range(4):
            loss = (model(torch.randn(5, 6)) - 1).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[:4], losses[4:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(dict(net.state_dict()), dict(other.state_dict()),
                               rtol=1e-3, atol=1e-4)
    assert {p.data_ptr() for p in net.parameters()} <= seen


def test_threads_are_those_of_the_options():
    x = torch.randn(64, 64)
    results = [torch.compile(lambda x: (x @ x).softmax(-1), backend=weft.torch_backend,
                             options={"threads": n})(x) for n in (1, 2)]
    assert torch.equal(*results)
