"""Needle's names: tensors that know their operator, operators with gradients, arrays of strides."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.compat import needle as ndl
from weft.compat.needle import data, init, ops, optim, recurrent, transformer
from weft.compat.needle import nn as needle_nn
from weft.support.errors import InvalidInputError

ROOT = Path(__file__).parents[3]


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
    assert [str(d) for d in ndl.all_devices()] == ["cpu()", "cuda()"]
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
    layer = nn.Linear(3, 2)
    row = ndl.Tensor(np.ones((1, 3)))
    layer(row).sum().backward()
    np.testing.assert_allclose(layer.bias.grad.numpy(), [1, 1])
    np.testing.assert_allclose(row.grad.numpy(), layer.weight.detach().numpy().sum(0)[None])
    assert row != ndl.Tensor(np.ones((1, 3)))  # equal to itself alone


def test_optimisers_of_weft_take_needles_tensors():
    w = ndl.Tensor([[1.0, 2.0]])
    optimizer = weft.optim.SGD([w], lr=0.5, momentum=0.9)
    for _ in range(2):
        w.grad = weft.ones(1, 2)
        optimizer.step()
    np.testing.assert_allclose(w.numpy(), [[-0.45, 0.55]], rtol=1e-6)


@pytest.fixture
def numpy_device():
    """Arrays without a device are NumPy's, as in the first homework."""
    ndl.set_default_device(ndl.cpu_numpy())
    yield
    ndl.set_default_device(ndl.cpu())


@pytest.mark.usefixtures("numpy_device")
def test_numpy_arrays_keep_their_dtype():
    x = ndl.Tensor(np.array([1.0, 2.0]))
    assert (x.device, x.numpy().dtype) == (ndl.cpu_numpy(), np.float64)
    assert isinstance(x.cached_data, np.ndarray)
    x.cached_data[0] = 5
    assert (x * ndl.Tensor(np.float32([2, 3]))).numpy().tolist() == [10, 6]
    assert ndl.Tensor([1, 2]).requires_grad
    assert ndl.default_device().full((2,), 3.0).tolist() == [3, 3]
    assert ndl.cpu_numpy() not in ndl.all_devices()


def test_parts_of_arrays_and_tiles():
    array = ndl.array(np.ones((4, 5)))
    assert array.process_slice(slice(1, None), 0) == slice(1, 4, 1)
    with pytest.raises(InvalidInputError, match="positive step"):
        array.process_slice(slice(3, 1), 0)
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 8, 8)), rng.normal(size=(3, 1, 8, 8))
    out = ndl.NDArray.make((2, 1, 8, 8))
    ndl.cpu().matmul_tiled(ndl.array(a)._handle, ndl.array(b)._handle, out._handle, 16, 24, 8)
    flat = [x.transpose(0, 2, 1, 3).reshape(x.shape[0] * 8, -1) for x in (a, b, out.numpy())]
    np.testing.assert_allclose(flat[0] @ flat[1], flat[2], rtol=1e-4, atol=1e-4)


def test_modules_have_needle_s_weights_and_modes():
    np.random.seed(0)  # noqa: NPY002 - as above
    model = needle_nn.Sequential(
        needle_nn.Linear(4, 3), needle_nn.BatchNorm1d(3), needle_nn.ReLU(),
        needle_nn.Residual(needle_nn.Sequential(needle_nn.Linear(3, 3), needle_nn.Dropout(0.5))))
    assert [tuple(p.shape) for p in model.parameters()] == [
        (4, 3), (1, 3), (3,), (3,), (3, 3), (1, 3)]
    x = ndl.Tensor(np.random.randn(8, 4))  # noqa: NPY002 - as above
    inner = model.modules[0](x)
    normal = model.modules[1](inner)
    np.testing.assert_allclose(normal.numpy().mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(model.modules[1].running_mean.numpy(), inner.numpy().mean(0) / 10,
                               rtol=1e-4)
    model.eval()
    assert not any(module.training for module in model._children())
    np.testing.assert_array_equal(model(x).numpy(), model(x).numpy())
    rows = needle_nn.LayerNorm1d(4)(x).numpy()
    np.testing.assert_allclose([rows.mean(1), rows.std(1)], [[0] * 8, [1] * 8], atol=1e-3)
    images = ndl.Tensor(np.random.randn(2, 3, 4, 4))  # noqa: NPY002 - as above
    assert tuple(needle_nn.Conv(3, 5, 3, stride=2)(images).shape) == (2, 5, 2, 2)
    flat = needle_nn.BatchNorm2d(3)(images).numpy()
    np.testing.assert_allclose(flat.mean((0, 2, 3)), 0, atol=1e-5)


def test_attention_is_that_of_its_weights():
    q, k, v = (ndl.Tensor(x) for x in np.random.default_rng(0).normal(size=(3, 2, 2, 3, 4)))
    out, weights = transformer.MultiHeadAttention(causal=True)(q, k, v)
    scores = np.exp(q.numpy() @ k.numpy().swapaxes(-2, -1) / 2) * np.tri(3)
    expected = scores / scores.sum(-1, keepdims=True)
    np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(out.numpy(), expected @ v.numpy(), rtol=1e-4, atol=1e-5)


def test_later_positions_change_nothing_of_a_causal_transformer():
    model = transformer.Transformer(6, 8, 1, num_head=2, dim_head=3, sequence_len=4)
    assert [tuple(p.shape) for p in model.parameters()][-4:] == [(6, 8), (1, 8), (8, 6), (1, 6)]
    x = np.random.default_rng(0).normal(size=(4, 2, 6))
    y, state = model(ndl.Tensor(x))
    assert (tuple(y.shape), float(state.sum().numpy())) == ((4, 2, 6), 0)
    x[3] = 0
    z, _ = model(ndl.Tensor(x))
    np.testing.assert_array_equal(y.numpy()[:3], z.numpy()[:3])
    y.sum().backward()
    assert all(p.grad is not None for p in model.parameters())
    with pytest.raises(InvalidInputError, match="too long"):
        model(ndl.Tensor(np.ones((5, 1, 6))))


def test_recurrent_modules_are_their_cells():
    x = ndl.Tensor(np.random.default_rng(0).normal(size=(2, 2, 4)))
    rnn, lstm = recurrent.RNN(4, 5), recurrent.LSTM(4, 5)
    out, h = rnn(x)
    assert (tuple(out.shape), tuple(h.shape)) == ((2, 2, 5), (1, 2, 5))
    np.testing.assert_array_equal(out.numpy()[-1], h.numpy()[-1])
    out, (h, c) = lstm(x)
    cell, state = lstm.lstm_cells[0], None
    for step in x.numpy():
        state = cell(ndl.Tensor(step), state)
    for one, other in zip(state, (h, c), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy()[0], rtol=1e-5)
    ids = ndl.Tensor(np.float32([[1, 0], [2, 2]]))
    table = recurrent.Embedding(3, 4)
    np.testing.assert_allclose(table(ids).numpy(), table.weight.numpy()[[[1, 0], [2, 2]]])


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_batches_of_a_loader_train(kind: str):
    rng = np.random.default_rng(0)
    images = rng.normal(size=(64, 4)).astype(np.float32)
    labels = (images[:, 0] > 0).astype(np.uint8)
    loader = data.DataLoader(data.NDArrayDataset(images, labels), batch_size=32, shuffle=True)
    assert [len(x) for x, _ in loader] == [32, 32]
    np.random.seed(0)  # noqa: NPY002 - as above
    model, loss = needle_nn.Linear(4, 2), needle_nn.SoftmaxLoss()
    options = {"SGD": {"lr": 0.5, "momentum": 0.5, "weight_decay": 1e-3}, "Adam": {"lr": 0.1}}
    opt = getattr(optim, kind)(model.parameters(), **options[kind])
    losses = []
    for _ in range(4):
        for x, y in loader:
            opt.reset_grad()
            value = loss(model(x), y)
            value.backward()
            opt.step()
            losses.append(float(value.numpy()))
    assert losses[-1] < 0.7 * losses[0]
    before = ndl.autograd.TENSOR_COUNTER
    kept = ndl.Tensor([1.0])
    assert ndl.autograd.TENSOR_COUNTER - before == len(kept.shape)


def test_data_sets_and_transforms(tmp_path: Any):
    image = np.arange(12.0).reshape(3, 4, 1)
    np.testing.assert_array_equal(data.RandomFlipHorizontal(1.0)(image), image[:, ::-1])
    np.random.seed(1)  # noqa: NPY002 - as above
    down, right = np.random.randint(-2, 3, size=2)  # noqa: NPY002 - as above
    np.random.seed(1)  # noqa: NPY002 - as above
    moved = data.RandomCrop(2)(image)
    wide = np.pad(image, ((2, 2), (2, 2), (0, 0)))
    np.testing.assert_array_equal(moved, wide[2 + down:5 + down, 2 + right:6 + right])
    for name, text in (("train.txt", "a b\na c\n"), ("test.txt", "c d\n")):
        (tmp_path / name).write_text(text)
    corpus = data.Corpus(tmp_path)
    assert (corpus.train, corpus.test) == ([0, 1, 2, 0, 3, 2], [3, 4, 2])
    batches = data.batchify(corpus.train, 2)
    x, y = data.get_batch(batches, 0, 5)
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([[0, 0], [1, 3]], [1, 3, 2, 2])


def test_names_of_the_course_are_importable():
    code = """
import tests.unit.compat.needle_names
import mugrade, numpy, needle as ndl, needle.nn as nn, needle.init as init
from needle import backend_ndarray as nd
from needle.data import DataLoader
assert type(ndl.default_device().full((2,), 1.0)) is numpy.ndarray and nd.NDArray
x = ndl.Tensor([[1, 2]], device=ndl.cpu_numpy())
assert nn.Residual(nn.Identity())(x).numpy().tolist() == [[2, 4]]
assert ndl.autograd.TENSOR_COUNTER > 0 and nn.Transformer and init.rand and DataLoader
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT,
                   env={**os.environ, "NEEDLE_BACKEND": "np"})
