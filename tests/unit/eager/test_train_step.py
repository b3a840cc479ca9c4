"""``weft.jit`` and ``weft.train_step``."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest

import weft


class Momentum:
    """An optimiser that makes its state in the first step."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        self.velocity: dict[Any, Any] = {}

    def step(self) -> None:
        with weft.no_grad():
            for p in self.parameters:
                if p not in self.velocity:
                    self.velocity[p] = weft.zeros_like(p)
                self.velocity[p].mul_(0.9).add_(p.grad)
                p.sub_(0.01 * self.velocity[p])
                p.grad = None


def problem() -> tuple[Any, list[Any]]:
    """A step with random noise, and its parameters."""
    weft.manual_seed(5)
    w, b = weft.randn(4, 3, requires_grad=True), weft.zeros(4, requires_grad=True)
    optimiser = Momentum([w, b])

    def step(x: Any, y: Any) -> Any:
        noisy = x + 0.1 * weft.randn(*x.shape)
        loss = (((noisy @ w.T + b).tanh() - y) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss

    return step, [w, b]


def batch(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(size)
    return (rng.normal(size=(size, 3)).astype(np.float32),
            rng.normal(size=(size, 4)).astype(np.float32))


def tensors(size: int) -> tuple[Any, Any]:
    x, y = batch(size)
    return weft.tensor(x), weft.tensor(y)


def test_a_compiled_step_trains_to_the_bit_like_the_loop() -> None:
    step, parameters = problem()
    plain = [step(*tensors(n)).item() for n in (8, 8, 8, 4, 8)]
    expected = [p.detach().numpy() for p in parameters]
    step, parameters = problem()
    compiled = weft.train_step(step)
    assert [compiled(*batch(n)).item() for n in (8, 8, 8, 4, 8)] == plain
    for p, value in zip(parameters, expected, strict=True):
        np.testing.assert_array_equal(p.detach().numpy(), value)


def test_state_made_in_the_first_step_needs_no_second_program() -> None:
    step, _ = problem()
    compiled = weft.train_step(step)
    for _ in range(3):
        compiled(*batch(8))
    (program,) = compiled._programs.all()
    assert program.settled
    assert len(compiled.states()) == 5  # two parameters, their velocities, the key


def test_values_recorded_before_a_step_are_those_of_before() -> None:
    step, (w, _) = problem()
    compiled = weft.train_step(step)
    compiled(*batch(8))
    value = w.detach().numpy().copy()
    double = 2 * w.detach()
    compiled(*batch(8))
    np.testing.assert_array_equal(double.numpy(), 2 * value)
    assert not np.array_equal(w.detach().numpy(), value)


def test_a_parameter_changed_outside_is_seen_by_the_next_step() -> None:
    step, (w, b) = problem()
    compiled = weft.train_step(step)
    compiled(*batch(8))
    with weft.no_grad():
        w.zero_()
        b.copy_(weft.ones(4))
    compiled(*batch(8))
    assert np.abs(w.detach().numpy()).max() < 0.2


def test_a_step_allocates_nothing_that_stays() -> None:
    step, _ = problem()
    compiled = weft.train_step(step)
    x, y = batch(8)
    for _ in range(3):
        compiled(x, y)
    gc.collect()
    tracemalloc.start()
    for _ in range(300):
        compiled(x, y)
    first = tracemalloc.get_traced_memory()[0]
    for _ in range(300):
        compiled(x, y)
    second = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert second - first < 300


LOADED = """
import sys
sys.modules["llvmlite"] = None
import numpy as np, weft
x, y = np.load(sys.argv[2])["x"], np.load(sys.argv[2])["y"]
step = weft.load(sys.argv[1])
print([float(step(x, y)) for _ in range(3)])
assert "weft.compiler.api" not in sys.modules
"""


def test_an_exported_step_trains_on_without_a_compiler(tmp_path: Any) -> None:
    step, _ = problem()
    compiled = weft.train_step(step)
    x, y = batch(8)
    compiled(x, y)
    compiled.export(tmp_path / "train.weft")
    np.savez(tmp_path / "batch.npz", x=x, y=y)
    done = subprocess.run(
        [sys.executable, "-c", LOADED, str(tmp_path / "train.weft"), str(tmp_path / "batch.npz")],
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([compiled(x, y).item() for _ in range(3)])


def test_jit_traces_once_per_shape(capsys: pytest.CaptureFixture[str]) -> None:
    @weft.jit
    def f(x: Any, scale: Any) -> Any:
        print("traced")
        return {"y": x * scale, "n": 3}

    for size in (2, 3, 2):
        found = f(weft.ones(size), 4.0)
        assert found["y"].tolist() == [4.0] * size
        assert found["n"] == 3
    assert capsys.readouterr().out == "traced\n" * 2


def test_gradients_flow_through_jit() -> None:
    f = weft.jit(lambda x: (x.sin() * x).sum())
    x = weft.tensor([0.5, 1.0], requires_grad=True)
    f(x).backward()
    value = x.detach().numpy()
    np.testing.assert_allclose(x.grad.numpy(), np.sin(value) + value * np.cos(value), rtol=1e-6)


def test_control_flow_on_a_value_says_what_to_write() -> None:
    @weft.jit
    def f(x: Any) -> Any:
        return x if x.sum() > 0 else -x

    with pytest.raises(weft.WeftError, match=r"weft\.where") as raised:
        f(weft.ones(2))
    assert __file__ in str(raised.value)


def test_static_arguments_are_part_of_the_key() -> None:
    @weft.jit
    def f(x: Any, *, training: bool) -> Any:
        return x + 1 if training else x

    g = weft.jit(f._function, static_argnames="training")
    assert g(weft.ones(2), training=True).tolist() == [2, 2]
    assert g(weft.ones(2), training=False).tolist() == [1, 1]
    with pytest.raises(weft.WeftError, match="static"):
        f(weft.ones(2), training=True)


def test_jit_updates_a_tensor_from_outside() -> None:
    average = weft.zeros(2)

    @weft.jit
    def f(x: Any) -> Any:
        average.mul_(0.5).add_(x)
        return average * 2

    assert f(weft.ones(2)).tolist() == [2, 2]
    assert f(weft.ones(2)).tolist() == [3, 3]
    assert average.tolist() == [1.5, 1.5]


def test_a_function_of_tensors_is_a_program() -> None:
    module = weft.trace(lambda x, y: (x * y).sum(), weft.ones(3), weft.ones(3))
    gradients = weft.compile(weft.grad(module))
    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(gradients(x, y)[1], x)


def test_transformations_take_functions_of_tensors() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x.sin() * y).sum()

    x, y = weft.tensor([0.5, 1.0]), weft.tensor([2.0, 3.0])
    cosine = np.cos(x.numpy()) * y.numpy()
    np.testing.assert_allclose(weft.grad(f)(x, y).numpy(), cosine, rtol=1e-6)
    value, (dx, dy) = weft.value_and_grad(f, (0, 1))(x, y)
    assert value.item() == pytest.approx(f(x, y).item())
    np.testing.assert_allclose(dy.numpy(), np.sin(x.numpy()), rtol=1e-6)
    np.testing.assert_allclose(dx.numpy(), cosine, rtol=1e-6)
    each = weft.vmap(weft.grad(f), in_axes=(0, None))(weft.stack([x, x * 2]), y)
    np.testing.assert_allclose(each.numpy()[0], cosine, rtol=1e-6)
    second = weft.hessian(f)(x, y).numpy()
    np.testing.assert_allclose(np.diag(second), -np.sin(x.numpy()) * y.numpy(), rtol=1e-5)
    forward = weft.compile(weft.jvp(f, 0, example_inputs=(x, y)))
    assert forward(x.numpy(), y.numpy(), np.ones(2, np.float32))[1] == pytest.approx(cosine.sum())
    with pytest.raises(weft.WeftError, match="example_inputs"):
        weft.vjp(f)


def test_cond_selects_in_a_traced_function() -> None:
    def f(x: Any) -> Any:
        return weft.cond(x.sum() > 0, lambda v: {"y": v * 2}, lambda v: {"y": -v}, x)

    for value in (1.0, -1.0):
        x = weft.tensor([value, value])
        expected = (x * 2 if value > 0 else -x).tolist()
        assert weft.jit(f)(x)["y"].tolist() == f(x)["y"].tolist() == expected
