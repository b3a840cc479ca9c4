"""``weft.compile`` takes modules of ``weft.nn`` and functions of tensors."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.support.errors import InvalidModelError, OptionError

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(2, 6)


def network(*layers: Any) -> nn.Module:
    weft.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.ReLU(), *layers)
    model.eval()
    return model


def test_a_module_has_its_names_and_results(tmp_path: Any) -> None:
    model = network()
    expected = model(weft.tensor(X)).detach().numpy()
    for examples in ((X,), (weft.tensor(X),), weft.tensor(X), X, {"input": X}):
        mod = weft.compile(model, example_inputs=examples)
        assert [(one.name, one.shape) for one in mod.inputs] == [("input", (2, 6))]
        np.testing.assert_allclose(mod(X), expected, rtol=1e-5, atol=1e-6)
    assert {"0.weight", "0.bias", "1.running_mean"} <= mod.weights().keys()
    mod.set_weights({"0.weight": np.zeros((4, 6), np.float32)})
    assert (mod(X)[0] == mod(X)[1]).all()
    mod.export(tmp_path / "net.weft", check=False)
    np.testing.assert_array_equal(weft.load(tmp_path / "net.weft")(X), mod(X))


def test_sizes_are_those_of_the_examples_or_symbols_where_the_code_reads_none() -> None:
    mod = weft.compile(network(), example_inputs=(X,), inputs={"input": ("batch", 6)})
    assert mod(np.zeros((5, 6), np.float32)).shape == (5, 4)
    with pytest.raises(InvalidModelError, match="a traced program does not accept these sizes"):
        weft.compile(network(nn.Flatten(0)), example_inputs=(X,), inputs={"input": ("batch", 6)})


def test_functions_of_tensors() -> None:
    def scaled(x: Any, factor: Any) -> Any:
        return x * factor

    for function in (scaled, weft.jit(scaled), functools.partial(scaled)):
        mod = weft.compile(function, example_inputs=(weft.tensor(X), weft.tensor(2.0)))
        np.testing.assert_array_equal(mod(X, np.float32(3)), 3 * X)


def test_the_only_example_of_a_function_may_be_alone() -> None:
    mod = weft.compile(lambda x: x + x, example_inputs=weft.tensor(X))
    np.testing.assert_array_equal(mod(X), X + X)


def test_what_is_missing_is_named() -> None:
    model = network()
    with pytest.raises(OptionError, match="needs example_inputs"):
        weft.compile(model)
    with pytest.raises(OptionError, match=r"(?s)do not fit the parameters.*'input'"):
        weft.compile(model, example_inputs={"x": X})
    model.train()
    with pytest.raises(InvalidModelError, match=r"(?s)training mode.*model\.eval"):
        weft.compile(model, example_inputs=(X,))
    step = weft.train_step(lambda x: model(x).sum())
    with pytest.raises(InvalidModelError, match=r"step\.export"):
        weft.compile(step, example_inputs=(X,))
