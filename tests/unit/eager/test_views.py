"""Views and detached tensors: what they share, what is refused, and how copies keep it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft


def test_a_write_reaches_the_base_and_every_view_in_any_order() -> None:
    x = weft.zeros(3, 4)
    row, column, flat, turned = x[1], x[:, 2], x.view(12), x.T
    flat[5] = 1
    row[2] += 2
    turned[3].fill_(4)
    column *= 10
    expected = np.zeros((3, 4))
    expected[1, 1], expected[1, 2], expected[:, 3] = 1, 20, 4
    for view, part in ((x, expected), (row, expected[1]), (column, expected[:, 2]),
                       (flat, expected.reshape(12)), (turned, expected.T)):
        np.testing.assert_array_equal(view.numpy(), part)
    assert x._version == row._version == 4


def test_operators_of_python_change_a_part() -> None:
    x = weft.tensor([7, 9, 12, 5])
    part = x[1:]
    part //= 2
    part %= 4
    part <<= 2
    part |= 1
    part ^= 3
    part >>= 1
    part &= 6
    expected = np.array([7, 9, 12, 5])
    expected[1:] = ((((((expected[1:] // 2) % 4) << 2) | 1) ^ 3) >> 1) & 6
    assert x.tolist() == expected.tolist()
    with pytest.raises(weft.WeftError, match="cannot be converted"):
        part += 0.5


def test_layouts_are_those_of_the_base() -> None:
    x = weft.zeros(2, 3, 4)
    assert x.stride() == x.strides == (12, 4, 1)
    turned = x[1, :, 1:].T
    assert (turned.stride(), turned.storage_offset()) == ((1, 4), 13)
    assert not turned.is_contiguous()
    assert turned.contiguous().is_contiguous()
    assert x.contiguous() is x
    assert x.diagonal(0, 1, 2).stride() == (12, 5)
    assert x.unfold(2, 2, 2).stride() == (12, 4, 2, 1)
    assert x[:1].expand(5, 3, 4).stride(0) == 0
    assert turned._base is x
    assert turned.untyped_storage() is x.untyped_storage()
    assert not turned.clone()._is_view()
    with pytest.raises(weft.WeftError, match="no view of the shape"):
        turned.view(9)
    assert not turned.reshape(9)._is_view()


@pytest.mark.parametrize("change", [
    lambda w, _: w[0].add_(1),
    lambda w, _: w.view(-1).zero_(),
    lambda w, _: w.mul_(2),
    lambda _, x: x.expand(2, 3).add_(1),
    lambda _, x: x.unfold(0, 2, 1).mul_(2),
    lambda _, x: x[0].detach_(),
    lambda _, x: x.add_(weft.ones(2, 3)),
    lambda _, x: x.view(2, -1),
    lambda _, x: x.view(weft.int64),
    lambda _, x: x.unfold(0, 4, 1),
    lambda _, x: x.expand(4),
    lambda _, x: x.diagonal(),
])
def test_refusals(change: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(weft.WeftError):
        change(weft.ones(2, 2, requires_grad=True), weft.ones(3))


def test_an_expanded_tensor_takes_one_number_and_nothing_where_it_is_empty() -> None:
    x = weft.zeros(3)
    x.expand(2, 3).fill_(4)
    x[:0].expand(2, 0).copy_(weft.tensor(5.0))
    x.expand(3, 3).diagonal()[1:].mul_(2)
    assert x.tolist() == [4, 8, 8]


def test_a_part_of_a_leaf_that_is_an_expanded_view_is_written_once() -> None:
    x = weft.zeros(1)
    leaf = x.expand(2).detach().requires_grad_()
    with weft.no_grad():
        leaf[0].add_(3)
    assert (x.tolist(), leaf.tolist(), leaf.is_leaf) == ([3], [3, 3], True)


def test_gradients_flow_through_changes_of_views() -> None:
    w = weft.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = w * 2
    view = x[1:]
    view.mul_(w[:2])
    (x.sum() + view[0] * 10).backward()
    assert w.grad.tolist() == [2 + 44, 22 + 6, 4]


def test_a_change_without_gradients_keeps_the_graph() -> None:
    w = weft.tensor([1.0, 2.0], requires_grad=True)
    for change in (lambda y: y.detach().fill_(5), lambda y: y.data.fill_(5)):
        y = w * 3
        change(y)
        assert y.requires_grad
        assert y.tolist() == [5, 5]
        (grad,) = weft.autograd.grad(y.sum(), w)
        assert grad.tolist() == [3, 3]
    with weft.no_grad():
        y = w * 3
    assert not y.requires_grad
    y = w * 3
    with weft.no_grad():
        y[0] = 7
        y += 1
    assert y.tolist() == [8, 7]
    assert weft.autograd.grad(y.sum(), w)[0].tolist() == [3, 3]


def test_detached_tensors_have_gradients_of_their_own() -> None:
    x = weft.ones(2)
    w = x.detach().requires_grad_()
    with weft.no_grad():
        w.add_(1)
    assert x.tolist() == [2, 2]
    x[0] = 5
    (w * w).sum().backward()
    assert (w.is_leaf, x.requires_grad, w.grad.tolist()) == (True, False, [10, 4])
    first, second = x.detach(), x[:1].detach()
    del x
    first.zero_()
    assert second.tolist() == [0]


def test_copies_of_several_tensors_share_what_their_originals_share() -> None:
    x = weft.arange(6.0)
    made = {"base": x, "part": x[1:3], "same": x.detach(), "turned": x.view(2, 3).T}
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        other["part"].fill_(9)
        assert other["base"].tolist() == other["same"].tolist() == [0, 9, 9, 3, 4, 5]
        assert other["turned"].tolist() == [[0, 3], [9, 4], [9, 5]]
        other["same"][0] = 7
        assert other["base"][0].item() == 7
    assert x.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_view_of_a_parameter_follows_compiled_steps() -> None:
    w = weft.zeros(3, requires_grad=True)
    part, outside = w[1:], w.detach()

    @weft.train_step
    def step() -> None:
        with weft.no_grad():
            w.add_(1)

    for count in range(1, 4):
        step()
        assert part.tolist() == [count] * 2
        assert outside.tolist() == [count] * 3
    outside[0] = 10
    step()
    assert w.tolist() == outside.tolist() == [11, 4, 4]
    assert len(step.states()) == 1


def test_traced_functions_change_tensors_through_views() -> None:
    x = weft.zeros(2, 2)
    row = x[1]

    @weft.jit
    def change(y: Any) -> Any:
        row.add_(y)
        x.view(-1)[0] += 1
        return row.sum()

    assert change(weft.ones(2)).item() == 2
    assert change(weft.tensor([2.0, 4.0])).item() == 8
    assert x.tolist() == [[2, 0], [3, 5]]
    assert row.tolist() == [3, 5]


def test_an_expression_has_one_shape_whether_its_tensor_is_computed_or_not() -> None:
    known = weft.tensor(np.arange(24.0).reshape(2, 3, 4))
    key = weft.tensor([1, 0])
    keys = [(0, ..., [1, 2]), (slice(None), 0, key), (key, slice(None), key), (True,), (False, 0),
            (key, 1, key), (slice(None), key, 0), (None, key, None, 1), (weft.tensor(True), 1),
            (..., known[0, 0] > 1), (0, 0, 1), (weft.tensor(2) > 3,)]
    for each in keys:
        recorded = known * 1
        np.testing.assert_array_equal(known[each].numpy(), recorded[each].numpy(), str(each))
    assert known[0, ..., [1, 2]].shape == (3, 2)
    assert known[True].shape == (1, 2, 3, 4)
    assert known[False].shape == (0, 2, 3, 4)
    scalar = weft.tensor(3.0, requires_grad=True)
    assert scalar.nonzero().shape == (1, 0)
    assert scalar.masked_select(scalar > 0).tolist() == [3.0]


def test_a_tensor_that_cannot_be_computed_fails_where_it_is_used_alone() -> None:
    wrong = weft.ones(1).expand(1 << 50) * 2  # more than memory
    late = wrong + 1
    x = weft.zeros(2)
    for _ in range(30):
        x = x + 1
        x.tolist()
    assert x.tolist() == [30, 30]
    for _ in range(2):
        with pytest.raises(weft.WeftError):
            late.numpy()
        with pytest.raises(weft.WeftError):
            wrong.numpy()
    assert (x * 2).tolist() == [60, 60]


def test_shapes_changed_in_place_are_views_of_the_same_memory():
    x = weft.arange(6.0).reshape(2, 3).clone()
    row = x[0]
    assert x.unsqueeze_(0) is x
    x.add_(1)
    assert row.tolist() == [1, 2, 3]
    row.mul_(10)
    assert x.transpose_(1, 2).stride() == (6, 1, 3)
    x[0, 1, 1] = 0
    assert row.tolist() == [10, 20, 30]
    assert x.tolist() == [[[10, 4], [20, 0], [30, 6]]]
    x.squeeze_().t_()
    assert (x.shape, x.is_contiguous()) == ((2, 3), True)
    both = pickle.loads(pickle.dumps((x, row)))
    both[1].zero_()
    assert both[0].tolist() == [[0, 0, 0], [4, 0, 6]]
    assert x.resize_(4).tolist() == [10, 20, 30, 4]
    assert x.resize_(2, 4).shape == (2, 4)
    assert x.flatten()[:6].tolist() == [10, 20, 30, 4, 0, 6]


def test_gradients_of_tensors_whose_shape_was_changed_in_place():
    w = weft.ones(2, 3, requires_grad=True)
    y = w * 2
    row = y[1]
    y.unsqueeze_(0).mul_(3)
    row.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [[0, 0, 0], [6, 6, 6]]
    for change in (w.t_, lambda: w.resize_(6)):
        with pytest.raises(weft.WeftError, match="requires a gradient"):
            change()
    with pytest.raises(weft.WeftError, match="outside of the traced function"):
        weft.jit(lambda x: x.unsqueeze_(0))(weft.ones(2))
    assert weft.jit(lambda x: (x * 2).unsqueeze_(0).add_(1))(weft.ones(2)).tolist() == [[3, 3]]
