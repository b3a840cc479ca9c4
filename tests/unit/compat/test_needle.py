"""Needle's names: tensors that know their operator, operators with gradients, arrays of strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.compat import needle as ndl
from weft.compat.needle import init, ops
from weft.support.errors import InvalidInputError


def numeric_gradients(f: Callable[..., Any], *args: Any) -> list[np.ndarray]:
    """Slopes of the sum of ``f``, through the arrays that the tensors give out."""
    found = []
    for arg in args:
        flat = arg.realize_cached_data().flat
        slopes = np.zeros(flat.size)
        for j in range(flat.size):
            values = []
            for step in (1e-2, -2e-2):
                arg.realize_cached_data().flat[j] += step
                values.append(float(f(*args).numpy().sum()))
            arg.realize_cached_data().flat[j] += 1e-2
            slopes[j] = (values[0] - values[1]) / 2e-2
        found.append(slopes.reshape(arg.shape))
    return found


def tensors(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [ndl.Tensor(rng.uniform(0.5, 2, shape)) for shape in shapes]


CASES: list[tuple[str, Callable[..., Any], list[tuple[int, ...]]]] = [
    ("divide", ndl.divide, [(3, 2), (3, 2)]), ("power", ndl.power_scalar, [(2, 2)]),
    ("matmul", ndl.matmul, [(2, 3), (3, 2)]), ("summation", ndl.summation, [(2, 3)]),
    ("broadcast", ndl.broadcast_to, [(3, 1)]), ("reshape", ndl.reshape, [(2, 3)]),
    ("transpose", ndl.transpose, [(2, 3)]), ("logsumexp", ndl.logsumexp, [(2, 3)]),
    ("stack", lambda a, b: ndl.stack(ndl.make_tuple(a, b), 0), [(2,), (2,)]),
    ("split", lambda a: ndl.split(a, 1)[1], [(2, 3)]), ("flip", ndl.flip, [(2, 2)]),
    ("dilate", ndl.dilate, [(2, 2)]), ("conv", ndl.conv, [(1, 3, 3, 1), (3, 3, 1, 2)])]
OPTIONS: dict[str, tuple[Any, ...]] = {
    "power": (3,), "broadcast": ((3, 4),), "reshape": ((3, 2),), "logsumexp": ((1,),),
    "flip": ((0,),), "dilate": ((0, 1), 1), "conv": (1, 1)}


@pytest.mark.parametrize(("name", "f", "shapes"), CASES, ids=[case[0] for case in CASES])
def test_gradients_of_operators_are_slopes(name: str, f: Callable[..., Any], shapes: Any):
    args = tensors(*shapes)

    def apply(*given: Any) -> Any:
        return f(*given, *OPTIONS.get(name, ()))

    out = apply(*args)
    found = out.op.gradient_as_tuple(ndl.Tensor(np.ones(out.shape)), out)
    for gradient, slopes in zip(found, numeric_gradients(apply, *args), strict=True):
        np.testing.assert_allclose(gradient.numpy(), slopes, rtol=2e-2, atol=2e-2)


def test_a_tensor_knows_what_made_it():
    a, b = tensors((2, 2), (2, 2))
    c = a * b + 3
    assert (type(c.op), type(c.inputs[0].op)) == (ops.AddScalar, ops.EWiseMul)
    assert [id(x) for x in c.inputs[0].inputs] == [id(a), id(b)]
    assert a.is_leaf()
    order = ndl.find_topo_sort([c])
    assert [id(x) for x in order] == [id(a), id(b), id(c.inputs[0]), id(c)]
    assert isinstance(c, ndl.Value)
    ndl.compute_gradient_of_variables(c, ndl.Tensor(np.ones((2, 2))))
    np.testing.assert_allclose(a.grad.numpy(), b.numpy())
    np.testing.assert_allclose(c.inputs[0].grad.numpy(), np.ones((2, 2)))


def test_gradients_have_gradients():
    x, y = ndl.Tensor([6.0]), ndl.Tensor([2.0])
    (x * x + x * y).backward()
    gradient = x.grad
    assert gradient.numpy() == [14]
    gradient.backward()
    assert (x.grad.numpy(), y.grad.numpy()) == ([2], [1])


def test_an_operator_of_the_user_has_its_own_gradient():
    class Double(ndl.TensorOp):
        def compute(self, a: Any) -> Any:
            return a * 2

        def gradient(self, out_grad: Any, node: Any) -> Any:
            return out_grad * 2

    x = ndl.Tensor([1.0, 2.0])
    y = Double()(x)
    assert y.numpy().tolist() == [2, 4]
    assert y.op.gradient_as_tuple(ndl.Tensor([1.0, 1.0]), y)[0].numpy().tolist() == [2, 2]


def test_arrays_are_views_of_their_memory():
    base = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    a = ndl.array(base, device=ndl.cpu())
    assert (a.strides, a.is_compact(), a.size) == ((12, 4, 1), True, 24)
    transposed = a.permute((2, 0, 1))
    assert transposed.strides == (1, 12, 4)
    np.testing.assert_array_equal(transposed.numpy(), base.transpose(2, 0, 1))
    assert transposed._handle.ptr() == a._handle.ptr()
    assert transposed.compact()._handle.ptr() != a._handle.ptr()
    part = a[1, 0:3:2, :]
    assert (part.shape, part.strides) == ((1, 2, 4), (12, 8, 1))
    part[0, 1, 1:3] = 9
    base[1, 2, 1:3] = 9
    np.testing.assert_array_equal(a.numpy(), base)
    a[0:1, :, :] = ndl.array(base[1:2])
    np.testing.assert_array_equal(a.numpy()[0], base[1])
    wide = ndl.array(base[:, :1]).broadcast_to((2, 5, 4))
    assert wide.strides == (4, 0, 1)
    np.testing.assert_array_equal((wide + 1).sum(1).numpy(), base[:, 0] * 5 + 5)
    np.testing.assert_array_equal((2 - a).maximum(0).numpy(), np.maximum(2 - a.numpy(), 0))
    np.testing.assert_array_equal(a.as_strided((3, 4), (4, 1)).numpy(), a.numpy()[0])
    with pytest.raises(InvalidInputError, match="another number"):
        a.reshape((5, 5))


def test_devices_say_whether_they_are_there():
    assert [d.name for d in ndl.all_devices()] == ["cpu", "cuda"]
    assert ndl.cpu().enabled()
    assert ndl.default_device() == ndl.cpu()
    assert ndl.cpu().one_hot(3, [1, 0]).numpy().tolist() == [[0, 1, 0], [1, 0, 0]]
    with pytest.raises(InvalidInputError, match="cuda is not there"):
        ndl.cuda().full((2,), 1.0)


def test_initial_values_and_layers():
    np.random.seed(1)  # noqa: NPY002 - Needle draws from NumPy's global generator
    bound = np.sqrt(6 / 8)
    assert np.abs(init.kaiming_uniform(8, 3).numpy()).max() <= bound
    assert init.one_hot(3, np.array([2, 0])).numpy().tolist() == [[0, 0, 1], [1, 0, 0]]
    assert set(init.randb(50).numpy().tolist()) == {False, True}
    assert init.constant(2, c=4.0).numpy().tolist() == [4, 4]
    x = ndl.Tensor(np.ones((1, 2, 5, 5)))
    y = ndl.Conv(2, 3, 3, stride=2)(x)
    assert tuple(y.shape) == (1, 3, 3, 3)
    y.sum().backward()
    assert ndl.LayerNorm1d(4)(weft.ones(2, 4)).detach().numpy().max() == 0
    layer = nn.Linear(3, 2)
    row = ndl.Tensor(np.ones((1, 3)))
    layer(row).sum().backward()
    np.testing.assert_allclose(layer.bias.grad.numpy(), [1, 1])
    np.testing.assert_allclose(row.grad.numpy(), layer.weight.detach().numpy().sum(0)[None])


def test_layers_and_optimisers_take_needles_devices_and_tensors():
    layer = weft.nn.Linear(2, 1, device=ndl.cpu())
    assert layer.weight.device == weft.device("cpu")
    w = ndl.Tensor([[1.0, 2.0]])
    optimizer = weft.optim.SGD([w], lr=0.5, momentum=0.9)
    for _ in range(2):
        w.grad = weft.ones(1, 2)
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), [[-0.45, 0.55]], rtol=1e-6)
