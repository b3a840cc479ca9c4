"""Containers have torch's methods, and modules torch's hooks and lazy layers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.modules.module import ModuleError
from weft.nn.state_dict import StateDictError
from weft.support.errors import InvalidInputError


def names(modules: Any) -> list[str]:
    return [type(m).__name__ for m in modules]


def test_sequences_add_repeat_and_pop():
    two = nn.Sequential(nn.ReLU(), nn.Tanh())
    assert names((two + nn.Sequential(nn.GELU())) * 2) == ["ReLU", "Tanh", "GELU"] * 2
    two += [nn.SiLU()]
    assert names([two.pop(0)]) == ["ReLU"]
    assert names(two.insert(1, nn.Mish())) == ["Tanh", "Mish", "SiLU"]
    assert list(two._modules) == ["0", "1", "2"]
    layers = nn.ModuleList([nn.ReLU()])
    layers += [nn.Tanh(), nn.GELU()]
    assert names(layers[1:]) == ["Tanh", "GELU"]
    layers[-1] = nn.Mish()
    del layers[0:1]
    assert names(layers + nn.ModuleList([nn.ReLU()])) == ["Tanh", "Mish", "ReLU"]
    with pytest.raises(IndexError):
        two.insert(9, nn.ReLU())
    with pytest.raises(ModuleError, match="not a module"):
        layers.append(3)


def test_dicts_of_modules_and_parameters():
    table = nn.ModuleDict([("a", nn.ReLU()), ("b", nn.Tanh())])
    table["a"] = nn.GELU()
    assert names(table.values()) == ["GELU", "Tanh"]
    assert names([table.pop("a")]) == ["GELU"]
    with pytest.raises(KeyError, match="no entry 'a'"):
        _ = table["a"]
    values = nn.ParameterDict({"x": weft.ones(2)})
    values |= {"n": 3}
    assert [n for n, _ in values.named_parameters()] == ["x"]
    assert list(values | {"y": weft.zeros(1)}) == ["x", "n", "y"]
    assert values.popitem() == ("n", 3)
    assert values.setdefault("z", weft.zeros(1)) is values["z"]
    assert values.get("other") is None
    assert list(reversed(values.copy())) == ["z", "x"]
    mixed = nn.ParameterList([weft.ones(2), "text"])
    mixed += [weft.ones(1)]
    assert list(mixed.state_dict()) == ["0", "2"]
    assert mixed[1] == "text"
    assert isinstance(mixed[-1], nn.Parameter)


def test_hooks_come_first_run_after_errors_and_see_states():
    layer, seen = nn.Linear(2, 2), []
    layer.register_forward_hook(lambda *_: seen.append("second"))
    layer.register_forward_hook(lambda *_: seen.append("first"), prepend=True, always_call=True)
    layer(weft.ones(1, 2))
    assert seen == ["first", "second"]
    with pytest.raises(weft.WeftError):
        layer(weft.ones(1, 3))
    assert seen == ["first", "second", "first"]
    layer.register_state_dict_pre_hook(lambda _m, prefix, _k: seen.append(f"save {prefix}"))
    layer.register_state_dict_post_hook(
        lambda _m, state, prefix, _meta: state.__delitem__(f"{prefix}bias"))
    root = nn.Sequential(layer)
    seen.clear()
    assert list(root.state_dict()) == ["0.weight"]
    assert seen == ["save 0."]


def test_hooks_of_loading_rename_and_forgive():
    layer = nn.Linear(2, 2)
    state = {f"old.{k}": v for k, v in layer.state_dict().items() if k == "weight"}

    def rename(_module: Any, given: Any, _prefix: str, *_rest: Any) -> None:
        given["weight"] = given.pop("old.weight")

    layer.register_load_state_dict_pre_hook(rename)
    with pytest.raises(StateDictError, match="missing key: bias"):
        layer.load_state_dict(state)
    layer.register_load_state_dict_post_hook(lambda _m, keys: keys.missing_keys.clear())
    assert layer.load_state_dict(state).missing_keys == []


def test_buffers_by_assignment_and_submodules_by_name():
    net = nn.Sequential(nn.Linear(2, 2))
    net.kept, net.lost = nn.Buffer(weft.ones(1)), nn.Buffer(weft.ones(1), persistent=False)
    assert list(net.state_dict()) == ["kept", "0.weight", "0.bias"]
    net.set_submodule("0", nn.Identity())
    assert names(net) == ["Identity"]
    with pytest.raises(ModuleError, match="no module '1'"):
        net.set_submodule("1", nn.ReLU(), strict=True)
    assert net.type(weft.float64).kept.dtype == weft.float64


LAZY = [("LazyLinear", (3,), (2, 5)), ("LazyConv1d", (3, 2), (2, 5, 7)),
        ("LazyConv2d", (3, 2), (5, 7, 7)), ("LazyConvTranspose2d", (3, 2), (2, 5, 4, 4)),
        ("LazyBatchNorm1d", (), (4, 5)), ("LazyInstanceNorm2d", (), (2, 5, 3, 3))]


@pytest.mark.parametrize(("name", "args", "shape"), LAZY)
def test_a_lazy_layer_becomes_the_layer_of_its_input(
    name: str, args: tuple[int, ...], shape: tuple[int, ...]
):
    layer = getattr(nn, name)(*args)
    assert layer.has_uninitialized_params()
    with pytest.raises(InvalidInputError, match="no shape yet"):
        _ = next(layer.parameters()).shape
    pickle.loads(pickle.dumps(layer))
    x = weft.ones(*shape)
    first = layer(x)
    plain = getattr(nn, name.removeprefix("Lazy"))
    assert type(layer) is plain
    other = getattr(nn, name)(*args)
    other.load_state_dict(layer.state_dict())
    if "BatchNorm" not in name:
        np.testing.assert_array_equal(other(x).detach().numpy(), first.detach().numpy())
    assert type(other(x)) is weft.Tensor
    assert all(type(p) is nn.Parameter for p in layer.parameters())
