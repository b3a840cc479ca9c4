"""Tensors on devices: simulated ones, and the emulated GPU where memory and copies matter."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from weft.eager.device import get_default_device, set_default_device
from weft.eager.functions import statistics
from weft.eager.node import DeviceMismatchError
from weft.runtime.devices.cuda.array import DeviceArray
from weft.runtime.devices.sim.arrays import SimArray
from weft.support.fallback import FallbackWarning

DEVICES = ["sim:0", "cuda:0"]


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    with weft.config(cuda="emulate"):
        yield


def values(x: Any) -> Any:
    """The elements, wherever they are."""
    return x.detach().cpu().numpy()


def test_a_device_is_torchs() -> None:
    gpu = weft.device("cuda", 1)
    assert gpu is weft.device("cuda:1") is weft.device(gpu) is weft.device(1)
    assert (gpu.type, gpu.index, str(gpu)) == ("cuda", 1, "cuda:1")
    assert repr(gpu) == "device(type='cuda', index=1)"
    assert weft.device("cuda").index is None
    assert weft.device("cuda") != weft.device("cuda:0")
    assert weft.ones(1).device == weft.device("cpu")
    assert pickle.loads(pickle.dumps(gpu)) is gpu
    assert {gpu: 1}[weft.device("cuda:1")] == 1


@pytest.mark.parametrize(("wrong", "message"), [
    (lambda: weft.device("cudo"), "unknown device"),
    (lambda: weft.device("cuda:0", 0), "not a device"),
    (lambda: weft.device("cuda:x"), "not a device"),
    (lambda: weft.device("cuda", -1), "negative"),
    (lambda: weft.ones(1, device="cpu:1"), "one device"),
    (lambda: weft.ones(1, device="cuda:7"), "no device cuda:7"),
], ids=["name", "twice", "number", "negative", "cpu", "missing"])
def test_what_is_no_device(wrong: Any, message: str) -> None:
    with pytest.raises(weft.WeftError, match=message):
        wrong()


@pytest.mark.parametrize("where", DEVICES)
def test_tensors_are_made_on_a_device(where: str) -> None:
    x = weft.tensor([[1.0, 2.0], [3.0, 4.0]], device=where)
    made = [x, weft.full((2, 2), 3.0, device=where), weft.zeros_like(x), weft.ones_like(x),
            x.new_zeros(2), x.new_tensor([1.0]), weft.arange(4, device=where), weft.eye(2).to(x),
            weft.as_tensor(x), weft.tensor(np.ones(2), device=where), weft.tensor(x)]
    with weft.device(where):
        made += [weft.ones(2), weft.linspace(0, 1, 3), weft.Tensor([1.0])]
    assert {str(one.device) for one in made} == {where}
    assert weft.zeros_like(x, device="cpu").device == weft.device("cpu")
    assert weft.ones(2).device == weft.device("cpu")
    kind = {"sim:0": SimArray, "cuda:0": DeviceArray}[where]
    assert type(x._node.value) is kind
    np.testing.assert_array_equal(values(weft.ones(2, device=where) * 3), [3, 3])


def test_the_default_device_is_that_of_its_thread() -> None:
    set_default_device("sim:1")
    try:
        with weft.device("cpu"):
            assert weft.ones(1).device.type == "cpu"
        assert weft.ones(1).device == get_default_device() == weft.device("sim:1")
    finally:
        set_default_device(None)


def test_copies_between_devices() -> None:
    x = weft.arange(4.0)
    there = x.to("sim:0")
    assert there.to(device="sim:0") is there
    assert x.to("cpu") is x
    assert x.to("cpu", copy=True) is not x
    half = there.to("sim:1", weft.float64)
    assert (str(half.device), half.dtype) == ("sim:1", weft.float64)
    np.testing.assert_array_equal(values(half.to(x)), x.numpy())
    assert str(weft.ones(1).cuda().device) == "cuda:0"
    x.copy_(there + 1)
    assert x.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("where", DEVICES)
def test_values_are_read_as_in_torch(where: str) -> None:
    x = weft.tensor([2.5], device=where)
    assert x.item() == 2.5
    assert x.tolist() == [2.5]
    assert bool(x > 1)
    assert repr(x) == f"tensor([2.5], device='{where}')"
    with pytest.raises(DeviceMismatchError, match=r"(?s)NumPy.*x\.cpu\(\)\.numpy\(\)"):
        x.numpy()
    with pytest.raises(DeviceMismatchError, match="NumPy"):
        np.asarray(x)


def test_a_mixture_is_an_error_with_the_line_of_the_operator() -> None:
    x, there = weft.ones(3), weft.ones(3, device="sim:0")
    with pytest.raises(DeviceMismatchError,
                       match=r'(?s)add: the tensors are not all on the same device.*test_devices'
                             r'.*cpu and sim:0.*x\.to\("sim:0"\)'):
        x + there
    with pytest.raises(DeviceMismatchError, match="sim:0 and sim:1"):
        weft.cat([there, there.to("sim:1")])
    with pytest.raises(DeviceMismatchError):
        x.add_(there)
    with pytest.raises(DeviceMismatchError):
        there.add_(x)


def test_numbers_and_tensors_without_axes_go_with_every_device() -> None:
    there = weft.ones(3, device="sim:0")
    number = weft.tensor(2.0)
    assert values(there * number + 1).tolist() == [3, 3, 3]
    assert (there * (number * 2)).device == there.device
    there.mul_(number)
    assert values(there).tolist() == [2, 2, 2]
    number.requires_grad_()
    (there * number).sum().backward()
    assert number.grad is not None
    assert (number.grad.device.type, number.grad.item()) == ("cpu", 6.0)


def test_views_and_changes_in_place_stay_on_the_device() -> None:
    x = weft.arange(12.0).reshape(3, 4).to("sim:0")
    row, column = x[1], x[:, 2]
    row.mul_(10)
    column[0] = -1.0
    x[weft.tensor([0, 2]), 1] = 5.0
    x[x > 60] = 0.0
    expected = np.arange(12.0).reshape(3, 4)
    expected[1] *= 10
    expected[0, 2] = -1
    expected[[0, 2], 1] = 5
    expected[expected > 60] = 0
    np.testing.assert_array_equal(values(x), expected)
    np.testing.assert_array_equal(values(column), expected[:, 2])
    assert {str(one.device) for one in (x, row, column, x.T, x.nonzero())} == {"sim:0"}


@pytest.mark.parametrize("where", DEVICES)
def test_gradients_flow_on_and_between_devices(where: str) -> None:
    w = weft.tensor([1.0, -2.0, 3.0], requires_grad=True)
    there = w.to(where)
    loss = (there * there.relu()).sum().cpu() * 2
    loss.backward()
    assert w.grad is not None
    assert w.grad.tolist() == [4, 0, 12]
    leaf = weft.ones(2, device=where, requires_grad=True)
    (leaf[0] * 3 + leaf.exp().sum()).backward()
    assert leaf.grad is not None
    assert leaf.grad.device == leaf.device
    np.testing.assert_allclose(values(leaf.grad), [3 + np.e, np.e], rtol=1e-6)
    leaf.grad = None
    with pytest.raises(weft.WeftError, match="device"):
        leaf.grad = weft.ones(2)


def test_values_stay_in_the_memory_of_the_device() -> None:
    x = weft.ones(3, device="sim:0")
    y = (x + 1) * 2
    (y + x).sum().item()
    memory = weft.device("sim:0").memory
    downloads: list[Any] = []
    whole = memory.download
    memory.download = downloads.append  # type: ignore[assignment, method-assign]
    try:
        z = y * x
        weft.eager.evaluate.flush()
        assert type(z._node.value) is SimArray
        assert not downloads
    finally:
        memory.download = whole  # type: ignore[method-assign]


def test_the_memory_of_a_device_is_counted() -> None:
    memory = weft.device("sim:3").memory
    before = memory.statistics().used
    x = weft.tensor(np.ones(1000, np.float32), device="sim:3")
    assert memory.statistics().used == before + 4000
    del x
    assert memory.statistics().used == before
    assert memory.statistics().peak >= 4000


@pytest.mark.parametrize("where", ["sim:1", "cuda"])
def test_draws_are_equal_on_every_device(where: str) -> None:
    def drawn(place: str) -> list[Any]:
        weft.manual_seed(7)
        x = weft.rand(4, device=place)
        return [values(one) for one in (x, weft.randn(3, device=place), weft.rand_like(x),
                                        x.clone().uniform_(2.0, 3.0))]

    for one, other in zip(drawn(where), drawn("cpu"), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_copies_by_pickle_and_deepcopy_keep_the_device() -> None:
    x = weft.tensor([1.0, 2.0], device="sim:0", requires_grad=True)
    for again in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x)):
        assert (str(again.device), again.tolist()) == ("sim:0", [1, 2])
        assert again.requires_grad


# Functions that make tensors of their own: draws, masks, first states, positions.
FUNCTIONS = {
    "rrelu": lambda x: weft.nn.functional.rrelu(x, training=True),
    "gumbel_softmax": weft.nn.functional.gumbel_softmax,
    "dropout1d": lambda x: weft.nn.functional.dropout1d(x, 0.5),
    "gru_cell": lambda x: weft.nn.GRUCell(3, 2, device=x.device)(x),
    "multinomial": lambda x: weft.multinomial(x.softmax(-1), 2),
    "combinations": lambda x: weft.combinations(x[0]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_make_their_own_tensors_where_the_input_is(name: str) -> None:
    found = FUNCTIONS[name](weft.tensor([[1.0, -2.0, 3.0], [0.5, 1.0, -1.0]], device="sim:0"))
    assert str(found.device) == "sim:0"


def test_what_the_host_computes_is_told_once_and_comes_back() -> None:
    statistics._TOLD.clear()
    x = weft.tensor([3, 1, 1, 2], device="sim:0")
    with pytest.warns(FallbackWarning, match="tensors of sim:0 are copied there"):
        values, counts = weft.unique(x, return_counts=True)
    found = [values, counts, weft.bincount(x), weft.histc(x.float(), 3),
             weft.repeat_interleave(x, x), weft.repeat_interleave(x), weft.poisson(x.float())]
    assert {str(one.device) for one in found} == {"sim:0"}
    assert found[2].tolist() == [0, 2, 1, 1]
    assert found[4].tolist() == [3, 3, 3, 1, 1, 2, 2]


def test_lengths_and_targets_of_a_loss_may_be_on_the_cpu() -> None:
    scores = weft.arange(24.0).reshape(3, 2, 4).sin().log_softmax(-1)
    rest = weft.tensor([[1, 2], [2, 3]]), weft.tensor([3, 3]), weft.tensor([2, 2])
    there = weft.nn.functional.ctc_loss(scores.to("sim:0"), *rest)
    assert str(there.device) == "sim:0"
    np.testing.assert_allclose(there.item(), weft.nn.functional.ctc_loss(scores, *rest).item())
