"""Functions of JAX, where jax is installed: values, gradients, symbolic sizes, bytecode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidModelError, OptionError

jax = pytest.importorskip("jax")
jnp = jax.numpy

RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape).astype(np.float32) for shape in ((4, 5), (5, 3)))


def _loss(params: dict[str, Any], x: Any) -> Any:
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return -jnp.mean(jax.nn.log_softmax(hidden)[:, 0])


PARAMS = {"w": W, "b": np.zeros(3, np.float32)}


def test_a_function_and_its_gradient_take_trees() -> None:
    module = weft.compile(jax.value_and_grad(_loss), example_inputs=(PARAMS, X))
    assert [port.name for port in module.inputs] == ["params['b']", "params['w']", "x"]
    leaves = jax.tree.leaves((PARAMS, X))
    wanted = jax.tree.leaves(jax.value_and_grad(_loss)(PARAMS, X))
    for got, right in zip(module(*leaves), wanted, strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("examples", [(X, W), [X, W], {"x": X, "w": W}])
def test_examples_by_position_and_by_name(examples: Any) -> None:
    module = weft.compile(lambda x, w: x @ w, example_inputs=examples)
    given = {port.name: {"x": X, "w": W}[port.name] for port in module.inputs}
    np.testing.assert_allclose(module(**given), X @ W, rtol=1e-5)


def test_arguments_that_a_function_ignores_stay_inputs() -> None:
    module = weft.compile(jax.jit(lambda x, unused: x + 1), example_inputs=(X, W))
    assert [port.name for port in module.inputs] == ["x", "unused"]
    np.testing.assert_array_equal(module(X, W), X + 1)


def test_what_jax_has_lowered_and_exported(tmp_path: Path) -> None:
    function = jax.jit(lambda x, w: jnp.exp(x @ w))
    lowered, exported = function.lower(X, W), jax.export.export(function)(X, W)
    files = {"text.mlir": lowered.as_text().encode(),
             "code.mlirbc": exported.mlir_module_serialized}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    for model in (lowered, exported, *(tmp_path / name for name in files)):
        np.testing.assert_allclose(weft.compile(model)(X, W), np.exp(X @ W), rtol=1e-5)


def test_symbolic_sizes() -> None:
    def twice_the_mean(x: Any) -> Any:
        return x.reshape(-1).sum() * 2 / x.size + jnp.arange(x.shape[0])

    (n,) = jax.export.symbolic_shape("n")
    exported = jax.export.export(jax.jit(twice_the_mean))(jax.ShapeDtypeStruct((n, 5), np.float32))
    named = weft.compile(twice_the_mean, example_inputs=(X,), inputs={"x": ("n", 5)})
    for module in (weft.compile(exported), named):
        assert module.inputs[0].shape == ("n", 5)
        for count in (1, 4, 7):
            x = RNG.standard_normal((count, 5)).astype(np.float32)
            np.testing.assert_allclose(module(x), twice_the_mean(x), rtol=1e-4, atol=1e-6)


def test_loops_branches_and_random_numbers() -> None:
    def function(key: Any, x: Any) -> Any:
        noise = jax.random.normal(jax.random.wrap_key_data(key), x.shape)
        total, sums = jax.lax.scan(lambda c, row: (c + row, c * row), noise[0], x)
        return jax.lax.cond(total[0] > 0, jnp.sin, jnp.cos, sums)

    key = np.array([1, 7], np.uint32)
    module = weft.compile(function, example_inputs=(key, X))
    np.testing.assert_allclose(module(key, X), function(key, X), rtol=1e-4, atol=1e-5)


def test_float64() -> None:
    with jax.enable_x64(True):
        x = X.astype(np.float64)
        module = weft.compile(jax.grad(lambda x: jnp.sum(jnp.sin(x) ** 3)), example_inputs=(x,))
        wanted = 3 * np.sin(x) ** 2 * np.cos(x)
    assert module.inputs[0].dtype == "float64"
    np.testing.assert_allclose(module(x), wanted, rtol=1e-12)


def test_what_jax_cannot_trace() -> None:
    with pytest.raises(InvalidModelError, match="cannot trace"):
        weft.compile(lambda x: x if x.sum() > 0 else -x, example_inputs=(X,))
    with pytest.raises(OptionError, match="traced already"):
        weft.compile(jax.jit(jnp.sin).lower(X), example_inputs=(X,))
