"""Modules: names, state dicts, hooks, modes, copies, containers."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.modules.module import ModuleError
from weft.nn.state_dict import StateDictError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 2)
        self.norm = nn.BatchNorm1d(2)
        self.tail = nn.Sequential(OrderedDict(act=nn.ReLU(), last=nn.Linear(2, 1, bias=False)))
        self.register_buffer("hidden", weft.zeros(1), persistent=False)

    def forward(self, x: Any) -> Any:
        return self.tail(self.norm(self.first(x)))


NAMES = ["first.weight", "first.bias", "norm.weight", "norm.bias", "tail.last.weight"]
STATE = ["first.weight", "first.bias", "norm.weight", "norm.bias", "norm.running_mean",
         "norm.running_var", "norm.num_batches_tracked", "tail.last.weight"]


def test_names_of_parameters_buffers_and_modules():
    net = Net()
    assert [name for name, _ in net.named_parameters()] == NAMES
    assert list(net.state_dict()) == STATE
    assert [name for name, _ in net.named_modules()] == [
        "", "first", "norm", "tail", "tail.act", "tail.last"]
    assert next(net.named_buffers())[0] == "hidden"
    assert net.get_parameter("tail.last.weight") is net.tail[1].weight
    visited: list[nn.Module] = []
    net.apply(visited.append)
    assert visited[-1] is net
    assert visited.index(net.tail.act) < visited.index(net.tail)


def test_a_shared_parameter_counts_once():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    both = nn.ModuleList([first, second])
    assert [n for n, _ in both.named_parameters()] == ["0.weight", "0.bias", "1.bias"]
    assert list(both.state_dict()) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_all_that_does_not_fit_is_reported_and_nothing_copied():
    net = Net()
    before = net.first.bias.detach().numpy().copy()
    state = {k: np.ones(v.shape, np.float32) for k, v in net.state_dict().items()}
    del state["norm.weight"], state["tail.last.weight"]
    state |= {"other": np.zeros(1), "first.weight": np.ones((2, 2), np.float32)}
    with pytest.raises(StateDictError) as caught:
        net.load_state_dict(state)
    for line in ("missing key: norm.weight", "missing key: tail.last.weight",
                 "unexpected key: other", "shape of first.weight: (2, 2), expected (2, 3)"):
        assert line in str(caught.value)
    np.testing.assert_array_equal(net.first.bias.detach().numpy(), before)
    del state["first.weight"]
    found = net.load_state_dict(state, strict=False)
    assert found.unexpected_keys == ["other"]
    assert "first.weight" in found.missing_keys
    np.testing.assert_array_equal(net.first.bias.detach().numpy(), [1, 1])


def test_a_state_holds_the_values_of_its_time():
    layer = nn.Linear(2, 1)
    state = layer.state_dict()
    old = state["weight"].numpy().copy()
    nn.init.zeros_(layer.weight)
    np.testing.assert_array_equal(state["weight"].numpy(), old)
    layer.load_state_dict(state)
    np.testing.assert_array_equal(layer.weight.detach().numpy(), old)


def test_copies_and_pickles_are_independent():
    net = Net()
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert list(other.state_dict()) == STATE
        assert isinstance(other.first.weight, nn.Parameter)
        assert other.first.weight.requires_grad
        np.testing.assert_array_equal(other.first.weight.detach().numpy(),
                                      net.first.weight.detach().numpy())
        nn.init.zeros_(other.first.weight)
        assert net.first.weight.detach().numpy().any()


def test_modes_and_gradients():
    net = Net()
    assert net.tail.act.training
    assert not net.eval().norm.training
    assert net.train() is net
    net(weft.ones(2, 3) * weft.tensor([[1.0], [2.0]])).sum().backward()
    assert net.first.weight.grad is not None
    net.zero_grad(set_to_none=False)
    assert not net.first.weight.grad.numpy().any()
    net.zero_grad()
    assert net.first.weight.grad is None
    assert not any(p.requires_grad for p in net.requires_grad_(False).parameters())
    net.double()
    assert net.first.weight.dtype == weft.float64
    assert net.norm.num_batches_tracked.dtype == weft.int64


def test_hooks_see_and_replace():
    layer, seen = nn.Linear(2, 2), []
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    x = weft.ones(1, 2).requires_grad_()
    pre = layer.register_forward_pre_hook(lambda _m, args: (args[0] * 2,))
    post = layer.register_forward_hook(lambda _m, _args, y: y + 1)
    layer.register_full_backward_pre_hook(lambda _m, g: seen.append(("out", g[0].tolist())))
    back = layer.register_full_backward_hook(
        lambda _m, g_in, g_out: seen.append((g_in[0].tolist(), g_out[0].tolist())) or (
            g_in[0] * 10,))
    y = layer(x)
    (y * 3).sum().backward()
    np.testing.assert_array_equal(y.detach().numpy(), [[3, 3]])
    assert seen == [("out", [[3, 3]]), ([[3, 3]], [[3, 3]])]
    np.testing.assert_array_equal(x.grad.numpy(), [[60, 60]])
    for handle in (pre, post, back):
        handle.remove()
    np.testing.assert_array_equal(layer(x).detach().numpy(), [[1, 1]])


def test_wrong_use_is_explained():
    class Early(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(1, 1)

    with pytest.raises(ModuleError, match="super"):
        Early()
    with pytest.raises(ModuleError, match="no method forward"):
        nn.Module()(1)
    layer = nn.Linear(1, 1)
    with pytest.raises(ModuleError, match=r"cannot assign Linear\.weight"):
        layer.weight = 3
    with pytest.raises(ModuleError, match="without a dot"):
        layer.register_buffer("a.b", None)
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = layer.other


def test_containers():
    layers = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    assert len(layers[:2]) == 2
    assert list(layers[1:].state_dict()) == ["2.weight", "2.bias"]
    layers.insert(1, nn.Identity())
    del layers[2]
    assert [type(m).__name__ for m in layers] == ["Linear", "Identity", "Linear"]
    named = nn.ModuleDict({"a": nn.ReLU()})
    named["b"] = nn.Linear(1, 1)
    assert list(named) == ["a", "b"]
    values = nn.ParameterList([weft.ones(2)])
    values.append(weft.zeros(1))
    assert [n for n, _ in nn.ModuleList([values]).named_parameters()] == ["0.0", "0.1"]
    table = nn.ParameterDict({"x": weft.ones(2)})
    assert table["x"].requires_grad
    assert repr(nn.Sequential(nn.Linear(2, 3))) == (
        "Sequential(\n  (0): Linear(in_features=2, out_features=3, bias=True)\n)")


def test_batch_norm_of_an_empty_batch_moves_no_averages():
    layer, x = nn.BatchNorm2d(3), weft.zeros(0, 3, 2, 2, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert (y.shape, x.grad.shape, layer.weight.grad.tolist()) == (x.shape, x.shape, [0, 0, 0])
    assert (layer.running_mean.tolist(), layer.num_batches_tracked.item()) == ([0, 0, 0], 1)
    assert layer.eval()(x).shape == x.shape


def test_hooks_of_all_modules_run_before_their_own():
    from weft.nn.modules.module import (
        register_module_forward_hook,
        register_module_forward_pre_hook,
        register_module_full_backward_hook,
        register_module_full_backward_pre_hook,
    )

    layer, seen = nn.Sequential(nn.Linear(2, 1)), []
    layer.register_forward_hook(lambda *_: seen.append("own"))
    note = [register_module_forward_pre_hook(lambda m, _: seen.append(f"{type(m).__name__} in")),
            register_module_forward_hook(lambda m, _, y: seen.append(f"{type(m).__name__} out")),
            register_module_full_backward_pre_hook(lambda *_: seen.append("before")),
            register_module_full_backward_hook(lambda *_: seen.append("backward"))]
    try:
        layer(weft.ones(1, 2, requires_grad=True)).sum().backward()
    finally:
        for handle in note:
            handle.remove()
    assert seen == ["Sequential in", "Linear in", "Linear out", "Sequential out", "own",
                    "before", "before", "backward", "backward"]
    layer(weft.ones(1, 2))
    assert seen[9:] == ["own"]


def test_parameters_that_are_loaded_from_arrays_keep_their_gradients():
    model = nn.LayerNorm(4)
    model.load_state_dict({name: np.full(4, 2, np.float32) for name in ("weight", "bias")})
    model(weft.Tensor(np.arange(8, dtype=np.float32).reshape(2, 4))).sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.reshape(2, 2).requires_grad


def test_two_modules_have_the_names_of_needle():
    x = weft.ones(2, 3)
    np.testing.assert_array_equal(nn.Residual(nn.Identity())(x).numpy(), 2 * np.ones((2, 3)))
    for dtype in ("int64", "uint8", "float32"):
        loss = nn.SoftmaxLoss()(weft.zeros(2, 4), weft.tensor([1, 3]).to(dtype))
        assert loss.item() == pytest.approx(np.log(4))
