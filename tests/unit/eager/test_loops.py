"""``while_loop``, ``scan`` and ``cond``: as Python's loops, in every kind of trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 3)).astype(np.float32)
W = (RNG.standard_normal((3, 3)) / 2).astype(np.float32)


def network(x: Any, w: Any, reverse: bool = False) -> Any:
    """A recurrent network: a loop."""
    def step(state: Any, row: Any) -> Any:
        h = weft.tanh(state["h"] @ w + row)
        return {"h": h, "n": state["n"] + 1}, (h * 2, state["n"])

    last, (ys, numbers) = weft.scan(step, {"h": weft.zeros(3), "n": 0}, x, reverse=reverse)
    return (ys**2).sum() + (last["h"] * last["n"]).sum() + (ys[:, 0] * numbers).sum()


def written_out(x: Any, w: Any, reverse: bool = False) -> Any:
    """The same without ``scan``."""
    h, total = weft.zeros(3), 0
    for n, i in enumerate(range(4)[::-1] if reverse else range(4)):
        h = weft.tanh(h @ w + x[i])
        total = total + (h * h * 4).sum() + h[0] * 2 * n
    return total + (h * 4).sum()


def gradients(function: Callable[..., Any], *values: Any) -> list[Any]:
    tensors = [weft.tensor(v, requires_grad=True) for v in values]
    loss = function(*tensors)
    loss.backward()
    return [loss.detach().numpy(), *[t.grad.numpy() for t in tensors]]


def agree(found: Any, expected: Any) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def is_first_order(program: Any) -> bool:
    return program.manifest.vm is None


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_in_every_mode(reverse: bool) -> None:
    def f(x: Any, w: Any) -> Any:
        return network(x, w, reverse)

    expected = gradients(lambda x, w: written_out(x, w, reverse), X, W)
    agree(gradients(f, X, W), expected)
    jitted = weft.jit(f)
    agree(gradients(jitted, X, W), expected)
    agree([jitted(weft.tensor(X), weft.tensor(W)).numpy()], expected[:1])
    differentiated = weft.value_and_grad(f, (0, 1))
    value, grads = differentiated(weft.tensor(X), weft.tensor(W))
    agree([value.numpy(), *[g.numpy() for g in grads]], expected)
    module = weft.compile(differentiated.module(weft.tensor(X), weft.tensor(W)))
    assert is_first_order(module)


def test_a_training_step_with_a_loop_is_one_program() -> None:
    w = weft.tensor(W, requires_grad=True)
    optimizer = weft.optim.SGD([w], lr=0.1)

    @weft.train_step
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = network(x, w)
        loss.backward()
        optimizer.step()
        return loss

    loss, _, grad = gradients(written_out, X, W)
    agree([step(weft.tensor(X)).numpy(), w.detach().numpy()], [loss, W - 0.1 * grad])
    assert all(is_first_order(p._module) for p in step._programs.all())


def nested(x: Any) -> Any:
    def outer(c: Any, row: Any) -> Any:
        def inner(a: Any, b: Any) -> Any:
            a = (a * b).sin() + c.detach() * b * c
            return a, a

        a, ys = weft.scan(inner, c, row)
        return a * 0.5 + c, ys.sum()

    c, ys = weft.scan(outer, weft.tensor(0.3), x)
    return c + (ys * ys).sum()


def second_row(function: Callable[..., Any], x: Any) -> Any:
    """One row of the second derivatives, by reverse mode twice."""
    leaf = weft.tensor(x, requires_grad=True)
    (first,) = weft.autograd.grad(function(leaf), [leaf], create_graph=True)
    first[0].sum().backward()
    return leaf.grad.numpy()  # type: ignore[union-attr]


def test_second_derivatives() -> None:
    agree([second_row(weft.jit(nested), X[:2, :2])], [second_row(nested, X[:2, :2])])

    def product(x: Any) -> Any:
        return weft.scan(lambda c, t: (c * t, None), weft.tensor(1.0), x)[0]

    _, b, c = X[0].tolist()
    agree([weft.hessian(product)(weft.tensor(X[0])).numpy()[0]], [[0, c, b]])


def test_batches_and_tangents() -> None:
    def products(x: Any) -> Any:
        return weft.scan(lambda c, t: (c * t, c + t), weft.tensor(1.0), x)[1]

    agree([weft.vmap(products)(weft.tensor(X)).numpy()],
          [np.cumprod(np.c_[np.ones(4), X[:, :-1]], 1) + X])
    a, b, _ = X[0].tolist()
    agree([weft.jacobian(products)(weft.tensor(X[0])).numpy()], [[[1, 0, 0], [1, 1, 0], [b, a, 1]]])


def collatz(n: Any) -> Any:
    return weft.while_loop(lambda n, _: n > 1, lambda n, k: (
        weft.where(n % 2 == 0, n // 2, 3 * n + 1), k + 1), (n, 0))[1]


def test_while_loop() -> None:
    jitted = weft.jit(collatz)
    for n, steps in ((1, 0), (6, 8), (27, 111)):
        assert collatz(weft.tensor(n)).item() == jitted(weft.tensor(n)).item() == steps
    assert [is_first_order(p._module) for p in jitted._programs.all()] == [True]


def test_while_loop_takes_the_state_whole_and_reads_tensors_from_outside() -> None:
    limit, factor = weft.tensor(3), weft.tensor([2.0, 3.0])

    @weft.jit
    def f(x: Any) -> Any:
        return weft.while_loop(lambda s: s["i"] < limit,
                               lambda s: {"i": s["i"] + 1, "x": s["x"] * factor},
                               {"i": 0, "x": x})

    found = f(weft.ones(2))
    assert (found["i"].item(), found["x"].tolist()) == (3, [8.0, 27.0])
    limit.add_(1)
    assert f(weft.ones(2))["x"].tolist() == [16.0, 81.0]


def squares(x: Any) -> Any:
    return weft.while_loop(lambda i, _: i < 3, lambda i, x: (i + 1, x * x.detach()), (0, x)
                           )[1].sum()


def test_gradients_of_while_loop() -> None:
    x = np.float32([1.1, 2.0])
    expected = gradients(squares, x)
    agree(expected[1:], [x**7])
    agree(gradients(weft.jit(squares), x), expected)
    agree([weft.grad(squares)(weft.tensor(x)).numpy()], expected[1:])
    w = weft.tensor(x, requires_grad=True)
    with pytest.raises(weft.WeftError, match="while_loop has no gradient") as raised:
        weft.train_step(lambda: squares(w).backward())()
    assert __file__ in str(raised.value)


def test_gradients_of_a_while_loop_in_a_scan() -> None:
    def f(x: Any) -> Any:
        return weft.scan(lambda c, t: (
            weft.while_loop(lambda v: v < 10, lambda v: v * 2, c + t), c), x[0], x)[0]

    x = np.float32([1.0, 2.0])
    expected = gradients(f, x)
    agree(gradients(weft.jit(f), x), expected)
    agree([weft.grad(f)(weft.tensor(x)).numpy()], expected[1:])


def test_cond_in_a_loop() -> None:
    def f(x: Any) -> Any:
        return weft.scan(lambda c, t: (weft.cond(t > 0, lambda a: a * t, lambda a: a + t, c), None),
                         weft.tensor(1.5), x)[0]

    agree(gradients(weft.jit(f), X[0]), gradients(f, X[0]))


def test_random_numbers_need_the_steps_written_out() -> None:
    def f(x: Any, unroll: bool) -> Any:
        return weft.scan(lambda c, t: (c + weft.nn.functional.dropout(t, 0.5), None), weft.zeros(3),
                         x, unroll=unroll)[0]

    assert set(weft.jit(lambda x: f(x, True))(weft.ones(2, 3)).tolist()) <= {0.0, 2.0, 4.0}
    with pytest.raises(weft.WeftError, match="changes a tensor from outside"):
        weft.jit(lambda x: f(x, False))(weft.ones(2, 3))


def leak(x: Any) -> Any:
    kept: list[Any] = []
    weft.scan(lambda c, t: (c + t, kept.append(c)), weft.tensor(0.0), x)
    return kept[0]


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "shape": (lambda x: weft.while_loop(lambda s: s["i"] < 3, lambda s: {
        "i": s["i"] + 1, "x": s["x"].sum()}, {"i": 0, "x": x}),
        r"carried value init\.x(.|\n)*\(3,\)(.|\n)*\(\)"),
    "dtype": (lambda x: weft.scan(lambda c, t: (c + t.double(), t), x[0], x), "float64"),
    "structure": (lambda x: weft.scan(lambda c, t: ((c, t), t), (x[0],), x), "another structure"),
    "pair": (lambda x: weft.scan(lambda c, t: c + t, x[0], x), "a pair"),
    "condition": (lambda x: weft.while_loop(lambda s: s.sum(), lambda s: s, x), "no boolean"),
    "sizes": (lambda x: weft.scan(lambda c, t: (c, t), x[0], x, length=2), "equal sizes"),
    "no steps": (lambda x: weft.scan(lambda c, t: (c, t), x[0], x[:0]), "one step at least"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    function, message = REFUSED[name]
    for f in (function, weft.jit(function)):
        with pytest.raises(weft.WeftError, match=message):
            f(weft.ones(3))


def test_what_only_a_trace_refuses() -> None:
    def f(x: Any) -> Any:
        return weft.while_loop(lambda s: bool(s.sum() < 3), lambda s: s + 1, x)

    assert f(weft.ones(1)).tolist() == [3.0]
    for function, message in ((f, "looked at"), (leak, "used outside of it")):
        with pytest.raises(weft.WeftError, match=message):
            weft.jit(function)(weft.ones(1))
