"""Keywords, ``out=`` and errors of arguments, which all functions of tensors share."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from weft.eager.signature import ArgumentError, factory, public
from weft.support.errors import InvalidInputError, WeftError


@public
def halved(input, dim=None, keepdim=False):
    """Half of the sum."""
    return input.sum(dim, keepdim) / 2


def test_numpy_names_are_accepted():
    x = weft.ones(2, 4)
    assert halved(x, axis=1, keepdims=True).tolist() == [[2.0], [2.0]]
    assert x.sum(axis=0).tolist() == weft.sum(x, dim=0).tolist() == [2.0] * 4


@pytest.mark.parametrize("call", [
    lambda x: halved(x, keep_dim=True), lambda x: x.sum(keep_dim=True),
    lambda x: weft.add(x, x, alpa=2), lambda x: weft.exp(x, outt=x)])
def test_the_nearest_keyword_is_offered(call):
    with pytest.raises(ArgumentError, match=r"did you mean '(keepdim|alpha|out)'") as caught:
        call(weft.ones(2))
    assert isinstance(caught.value, WeftError)
    assert isinstance(caught.value, TypeError)


def test_wrong_counts_show_the_signature():
    with pytest.raises(ArgumentError, match=r"halved\(input, dim=None, keepdim=False\)"):
        halved(weft.ones(2), 0, False, 1)
    with pytest.raises(ArgumentError, match="missing 1 required"):
        weft.clamp()


def test_an_error_inside_is_not_taken_for_one_of_arguments():
    @public
    def broken(input):
        return input + None.missing  # type: ignore[attr-defined]

    with pytest.raises(AttributeError):
        broken(weft.ones(2))


def test_out_gets_the_result_in_its_dtype():
    x, y, out = weft.tensor([1, 2]), weft.tensor([3, 4]), weft.zeros(2)
    assert weft.add(x, y, alpha=2, out=out) is out
    assert out.tolist() == [7.0, 10.0]
    assert out.dtype is weft.float32
    values, places = weft.zeros(1), weft.zeros(1, dtype=weft.int64)
    found = weft.max(weft.tensor([[1.0, 5.0, 2.0]]), 1, out=(values, places))
    assert values.tolist() == [5.0]
    assert found.indices is places
    assert places.tolist() == [1]


def test_out_of_another_shape_is_resized_with_a_warning():
    out = weft.zeros(3)
    with pytest.warns(UserWarning, match="becomes"):
        weft.exp(weft.zeros(2), out=out)
    assert out.tolist() == [1.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weft.exp(weft.zeros(2), out=weft.zeros(0))


def test_out_refuses_lower_categories_and_gradients():
    with pytest.raises(InvalidInputError, match="cannot be converted"):
        weft.exp(weft.zeros(2), out=weft.zeros(2, dtype=weft.int64))
    with pytest.raises(InvalidInputError, match="requires a gradient"):
        weft.exp(weft.zeros(2, requires_grad=True), out=weft.zeros(2))
    with pytest.raises(ArgumentError, match="out= takes"):
        weft.aminmax(weft.zeros(2), out=weft.zeros(()))


def test_factories_take_devices_and_gradients():
    @factory
    def twos(n, *, dtype=None):
        return weft.full((n,), 2.0, dtype=dtype)

    assert twos(2, device="cpu", pin_memory=True, layout=None, requires_grad=True).requires_grad
    with pytest.raises(WeftError):
        twos(2, device="nowhere")
    assert "requires_grad=False" in str(inspect.signature(twos))


def test_signatures_are_those_of_the_functions():
    assert str(inspect.signature(weft.add)) == "(input, other, *, out=None, alpha=1)"
    assert str(inspect.signature(weft.exp)) == "(input, *, out=None)"
    assert list(inspect.signature(weft.sum).parameters) == [
        "input", "dim", "keepdim", "dtype", "out"]
    assert weft.exp.__doc__
    assert weft.exp.__module__ == "weft.eager.functions.elementwise"


def _callables() -> Iterator[tuple[str, Any]]:
    """The public functions, methods, layers, optimisers and schedules, with their names."""
    for package in (weft, weft.nn.functional, weft.linalg, weft.special, weft.fft):
        for name in package.__all__:
            found = getattr(package, name)
            if inspect.isroutine(found) and found.__module__.startswith(
                    ("weft.eager.functions", "weft.nn")):
                yield f"{package.__name__}.{name}", found
    for name in dir(weft.Tensor):
        found = inspect.getattr_static(weft.Tensor, name)
        if inspect.isfunction(found) and not name.startswith("_"):
            yield f"weft.Tensor.{name}", found
    for package in (weft.nn, weft.optim, weft.optim.lr_scheduler):
        for name in package.__all__:
            found = getattr(package, name)
            if inspect.isclass(found) and not issubclass(found, (weft.Tensor, Exception)):
                yield f"{package.__name__}.{name}", found


# Their only argument is that of Python or of the array API, or they are called too often to look.
_PLAIN = {"weft.is_tensor", "weft.Tensor.lowered", "weft.manual_seed", "weft.set_rng_state",
          "weft.Tensor.size",
          "weft.Tensor.to_device", "weft.alias_copy", "weft.nn.Buffer", "weft.nn.Parameter",
          "weft.nn.UninitializedBuffer", "weft.nn.UninitializedParameter"}


def test_a_misspelled_keyword_is_answered_with_the_nearest() -> None:
    wrong = []
    for name, found in _callables():
        parameters = [p for p in inspect.signature(found).parameters.values() if p.kind in (
            p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        if name in _PLAIN or not parameters or parameters[-1].name == "self":
            continue
        needed = [p for p in parameters if p.default is p.empty and p is not parameters[-1]]
        misspelled = parameters[-1].name + "z"
        try:
            found(*[weft.ones(2, 2)] * sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in needed),
                  **{misspelled: 1})
        except weft.WeftError as error:
            if misspelled not in str(error) or "did you mean" not in str(error):
                wrong.append(f"{name}: {error}")
        except TypeError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong, "\n".join(wrong)
