"""Divisors and labels that only a run knows: a wrong one is an error that names the call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.eager.checks import IndexRangeError, ZeroDivisorError
from weft.nn import functional as fn

LOGITS = np.float32([[0, 0, 9], [9, 0, 0]])
QUOTIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "//": lambda a, b: a // b, "%": lambda a, b: a % b, "fmod": weft.fmod,
    "floor": lambda a, b: weft.div(a, b, rounding_mode="floor"),
    "trunc": lambda a, b: weft.div(a, b, rounding_mode="trunc"),
}


def known(values: Any) -> Any:
    return weft.tensor(values)


def computed(values: Any) -> Any:
    """A tensor whose values are not there before its program runs."""
    return weft.tensor(values) * 1


@pytest.mark.parametrize("made", [known, computed])
@pytest.mark.parametrize("name", QUOTIENTS)
def test_integers_are_not_divided_by_zero(name: str, made: Callable[[Any], Any]) -> None:
    divide = QUOTIENTS[name]
    with pytest.raises(ZeroDivisorError, match="a divisor is zero") as caught:
        divide(weft.tensor([7, 8]), made([2, 0])).numpy()
    assert isinstance(caught.value, ZeroDivisionError)
    assert divide(weft.tensor([7.0, 8.0]), made([2.0, 0.0])).numpy()[0] in (3, 1)
    assert divide(weft.tensor(np.zeros((0,), np.int64)), made([0])).shape == (0,)


def test_the_smallest_integer_by_minus_one_wraps_as_in_numpy() -> None:
    for dtype in (np.int8, np.int32, np.int64):
        least = np.array([np.iinfo(dtype).min], dtype)
        quotient = weft.tensor(least) // weft.tensor(np.array([-1], dtype))
        np.testing.assert_array_equal(quotient.numpy(), least)
        assert (weft.tensor(least) % weft.tensor(np.array([-1], dtype))).item() == 0


@pytest.mark.parametrize("made", [known, computed])
@pytest.mark.parametrize("labels", [[255, 0], [3, 0], [-1, 0]])
@pytest.mark.parametrize("loss", [
    fn.cross_entropy, lambda x, y: fn.cross_entropy(x, y, label_smoothing=0.1),
    lambda x, y: fn.nll_loss(fn.log_softmax(x, 1), y), fn.multi_margin_loss,
], ids=["cross entropy", "smoothed", "nll", "margin"])
def test_labels_are_classes(loss: Any, labels: list[int], made: Callable[[Any], Any]) -> None:
    with pytest.raises(IndexRangeError, match="a label is out of range"):
        loss(weft.tensor(LOGITS), made(labels)).item()


@pytest.mark.parametrize("made", [known, computed])
def test_ignored_labels_may_be_any_number(made: Callable[[Any], Any]) -> None:
    logits = weft.tensor(LOGITS)
    one = fn.cross_entropy(logits[1:], weft.tensor([0])).item()
    for ignored, dtype in ((-100, np.int64), (255, np.uint8), (-1, np.int32)):
        labels = made(np.array([ignored, 0]).astype(dtype))
        assert fn.cross_entropy(logits, labels, ignore_index=ignored).item() == one


@pytest.mark.parametrize("made", [known, computed])
def test_embeddings_and_one_hot_take_what_is_there(made: Callable[[Any], Any]) -> None:
    table = weft.tensor(np.float32([[1], [2]]))
    for index in (-1, 2):
        for function in (lambda i: fn.embedding(i, table), lambda i: fn.one_hot(i, 2),
                         lambda i: fn.embedding_bag(i.reshape(1, 1), table)):
            with pytest.raises(IndexRangeError, match="out of range"):
                function(made([index])).numpy()
    assert fn.embedding(made([1]), table).item() == 2


def test_compiled_functions_check_each_call() -> None:
    loss = weft.jit(fn.cross_entropy)
    quotient = weft.jit(lambda a, b: a // b)
    logits = weft.tensor(LOGITS)
    assert np.isfinite(loss(logits, weft.tensor([2, 0])).item())
    assert quotient(weft.tensor([7]), weft.tensor([2])).item() == 3
    with pytest.raises(IndexRangeError):
        loss(logits, weft.tensor([255, 0])).item()
    with pytest.raises(ZeroDivisorError):
        quotient(weft.tensor([7]), weft.tensor([0])).item()


@pytest.mark.parametrize("loss", [fn.cross_entropy, weft.jit(fn.cross_entropy)], ids=["", "jit"])
def test_gradients_check_though_nobody_looks_at_the_loss(loss: Any) -> None:
    logits = weft.tensor(LOGITS, requires_grad=True)
    loss(logits, computed([255, 0])).backward()
    assert logits.grad is not None
    with pytest.raises(IndexRangeError):
        logits.grad.numpy()


def test_a_program_without_checks_gives_nan_for_a_label_that_is_no_class() -> None:
    for reduction in ("mean", "sum"):
        program = weft.compile(weft.parse(f"""
            def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(2,), uint8],
                      %w: Tensor[(3,), float32]) {{
                nn.nll_loss(%x, %y, %w, reduction="{reduction}", ignore_index=7)
            }}"""))
        weights = np.ones(3, np.float32)
        assert np.isnan(program(LOGITS, np.uint8([255, 0]), weights))
        assert np.isfinite(program(LOGITS, np.uint8([7, 0]), weights))
