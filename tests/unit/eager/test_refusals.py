"""Uses that cannot work say what is wrong, and what to do instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.support.errors import InvalidInputError


def test_backward_through_values_that_were_freed():
    w = weft.ones(2, requires_grad=True)
    loss = (w.exp() * w).sum()
    loss.backward()
    with pytest.raises(InvalidInputError, match=r"were freed(?s:.)*retain_graph=True"):
        loss.backward()


@pytest.mark.parametrize("change", [
    lambda x, at: x[at], lambda x, at: x.index_select(0, at), lambda x, at: x.gather(0, at),
    lambda x, at: x.scatter_add(0, at, x), lambda x, at: x.index_put((at,), weft.ones(1)),
    lambda x, at: x[4], lambda x, at: x[:, 1]])
def test_indices_out_of_range(change: Any):
    for index in (weft.tensor([3]), weft.tensor([1]) * 3):
        with pytest.raises(IndexError) as caught:
            np.asarray(change(weft.ones(3), index))
        assert isinstance(caught.value, weft.WeftError)


class Foreign:
    """A parameter of another library."""


def test_an_optimizer_over_other_parameters():
    for given in ([np.ones(2)], [Foreign()]):
        with pytest.raises(InvalidInputError, match="takes parameters of weft") as caught:
            weft.optim.SGD(given, lr=0.1)
        assert f"'s {type(given[0]).__name__}" in str(caught.value)


def test_a_compiled_model_inside_a_traced_function():
    model = weft.compile(weft.parse("def @main(%x: Tensor[(2), float32]) { tanh(%x) }"))

    @weft.train_step
    def step(x: Any) -> Any:
        return weft.tensor(model(x * 2.0)).sum()

    with pytest.raises(InvalidInputError, match="into a compiled model") as caught:
        step(weft.ones(2))
    assert "call the layer that was compiled" in str(caught.value)


def test_keywords_of_layers():
    with pytest.raises(TypeError, match="Conv2d has no keyword 'paddin'") as caught:
        nn.Conv2d(1, 1, 3, paddin=1)
    assert isinstance(caught.value, weft.WeftError)
    assert "did you mean 'padding'" in str(caught.value)

    class Own(nn.Linear):
        def __init__(self, **options: Any) -> None:
            super().__init__(2, 2, bias=options["with_bias"])

    assert Own(with_bias=False).bias is None


@pytest.mark.parametrize(("call", "message"), [
    (lambda x: nn.functional.linear(x.long(), x), "different dtypes"),
    (lambda x: nn.functional.conv2d(weft.ones(1, 2, 4, 4), weft.ones(1, 1, 3, 3)),
     "input channels do not match"),
    (lambda x: weft.cat([x, weft.ones(3, 2)]), "does not fit"),
    (lambda x: x.sum(5), "dim is out of range"),
    (lambda x: x[weft.ones(2)], "tensor of floats"),
    (lambda x: x.to("cudo"), r"(?s)unknown dtype 'cudo'.*a device is written such as"),
    (lambda x: x.to(dtyp=weft.float64), "did you mean 'dtype'"),
    (lambda x: nn.functional.cross_entropy(x * 2, weft.tensor([0, 7])).item(), "out of range"),
    (lambda x: nn.functional.binary_cross_entropy(x * 3, x).item(), "not from 0 to 1"),
    (lambda x: weft.multinomial(x * 0, 1).tolist(), "all of them are 0"),
    (lambda x: weft.multinomial(x - 2, 2, True).tolist(), "below 0"),
    (lambda x: nn.functional.one_hot(weft.tensor([5]) * 1, 3).tolist(), "out of range"),
    (lambda x: weft.histogramdd(x, [weft.tensor([1.0, 0.0]), 2, 2]), "the bins do not fit"),
    (lambda x: (x * 2).backward(), "does not require a gradient"),
    (lambda x: weft.optim.SGD([nn.Parameter(x)], lr=-1), "lr is negative"),
], ids=["dtype", "channels", "sizes", "axis", "index", "device", "keyword", "class", "probability",
        "zeros", "negative", "one_hot", "bins", "backward", "rate"])
def test_wrong_values_say_what_is_wrong(call: Any, message: str):
    with pytest.raises(weft.WeftError, match=message):
        call(weft.ones(2, 3))
