"""An unchanged torch module is found in the cache without being traced; a changed one is not."""

from __future__ import annotations

import functools
import importlib.util
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch
nn = torch.nn

from weft.frontend.torch import program  # noqa: E402 - needs torch
from weft.frontend.torch.module_digest import module_digest  # noqa: E402

CODE = """
import torch
from torch import nn
from torch.nn import functional as F
FACTOR = 2.0
TABLE = {"shift": 1.0}

def scaled(x):
    return x * FACTOR

class Part(nn.Module):
    kind = "relu"

    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(4, size)
        self.shift = 0.5

    def forward(self, x):
        return getattr(F, self.kind)(self.linear(x)) + self.shift + TABLE["shift"]

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([Part(4), Part(3)])
        self.register_buffer("offset", torch.ones(3))

    def forward(self, x):
        for part in self.parts:
            x = part(x)
        return scaled(x) + self.offset
"""
_NUMBERS = itertools.count()


def load(folder: Path, code: str = CODE) -> ModuleType:
    """The code as a module of the user's."""
    path = folder / f"user_code_{next(_NUMBERS)}.py"
    path.write_text(code, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def net_of(module: ModuleType) -> nn.Module:
    torch.manual_seed(0)
    return module.Net().eval()


def digest(net: nn.Module, *inputs: Any) -> str | None:
    found = module_digest(net, inputs or (torch.ones(2, 4),))
    return None if isinstance(found, str) else found.text


def test_the_same_code_and_weights_have_one_digest(tmp_path):
    first, second = (net_of(load(tmp_path)) for _ in range(2))
    assert digest(first) is not None
    assert digest(first) == digest(second) == digest(first, torch.zeros(2, 4))


CHANGED_CODE = {
    "a global": ("FACTOR = 2.0", "FACTOR = 3.0"),
    "a table": ('"shift": 1.0', '"shift": 2.0'),
    "a function": ("x * FACTOR", "x + FACTOR"),
    "a method": ("x = part(x)", "x = part(x) * 2"),
    "an attribute": ("self.shift = 0.5", "self.shift = 0.25"),
    "an attribute of the class": ('kind = "relu"', 'kind = "gelu"'),
    "a class": ("nn.ModuleList([Part(4), Part(3)])", "nn.ModuleList([Part(4), nn.Linear(4, 3)])"),
    "sharing": ("[Part(4), Part(3)]", "2 * [Part(4)] + [Part(3)]"),
    "a buffer": ("torch.ones(3)", "torch.zeros(3)"),
}


@pytest.mark.parametrize("what", CHANGED_CODE)
def test_other_code_has_another_digest(what, tmp_path):
    changed = net_of(load(tmp_path, CODE.replace(*CHANGED_CODE[what])))
    assert digest(changed) not in (None, digest(net_of(load(tmp_path))))


def change_weight(net: nn.Module) -> None:
    with torch.no_grad():
        net.parts[1].linear.weight[0, 0] += 1e-6


def tie(net: nn.Module) -> None:
    net.parts[1].linear.bias = nn.Parameter(net.parts[1].linear.weight.detach()[:, 0])


CHANGES = {
    "a weight": change_weight,
    "a dtype": lambda net: net.double(),
    "a setting": lambda net: setattr(net.parts[0], "shift", 0.75),
    "another attribute": lambda net: setattr(net, "extra", [1, {"a": (2, None)}]),
    "another module": lambda net: net.parts.append(nn.ReLU()),
    "tied weights": tie,
    "training": lambda net: net.train(),
}


@pytest.mark.parametrize("what", CHANGES)
def test_another_state_has_another_digest(what, tmp_path):
    module = load(tmp_path)
    net, other = net_of(module), net_of(module)
    CHANGES[what](net)
    assert digest(net) not in (None, digest(other))


def test_other_arguments_have_another_digest(tmp_path):
    net = net_of(load(tmp_path))
    arguments = [(torch.ones(2, 4),), (torch.ones(3, 4),), (torch.ones(2, 4).double(),),
                 (torch.ones(4, 2).t(),), ([torch.ones(2, 4)],), (torch.ones(2, 4), 1),
                 (torch.ones(2, 4), 1.0)]
    found = [digest(net, *given) for given in arguments]
    assert None not in found
    assert len(set(found)) == len(found)


UNKNOWN_CODE = {
    "random numbers": ("x * FACTOR", "x * random.random()", "import random\n"),
    "the environment": ("x * FACTOR", "x * float(os.environ['FACTOR'])", "import os\n"),
    "a tensor in a global": ("FACTOR = 2.0", "FACTOR = torch.ones(3)", ""),
    "a module in a list": ("self.shift = 0.5", "self.shift = [nn.ReLU()]", ""),
    "an import": ("return x * FACTOR", "import a_module_of_somebody\n    return x * FACTOR", ""),
}


@pytest.mark.parametrize("what", UNKNOWN_CODE)
def test_what_cannot_be_known_has_no_digest(what, tmp_path):
    before, after, head = UNKNOWN_CODE[what]
    assert digest(net_of(load(tmp_path, head + CODE.replace(before, after)))) is None


@pytest.mark.parametrize("what", ["a hook", "a patched instance", "a patched library",
                                  "a swapped library function", "a parametrisation"])
def test_patches_are_seen(what, tmp_path, monkeypatch):
    net = net_of(load(tmp_path))
    before = digest(net)
    if what == "a hook":
        net.register_forward_hook(lambda *_: None)
    elif what == "a patched instance":
        net.parts[0].forward = functools.partial(lambda self, x: x, net.parts[0])
    elif what == "a patched library":
        monkeypatch.setattr(nn.functional, "relu", lambda x: x)
    elif what == "a swapped library function":
        monkeypatch.setattr(nn.functional, "relu", nn.functional.gelu)
        assert digest(net) != before
        return
    else:
        nn.utils.parametrize.register_parametrization(net.parts[0].linear, "weight", nn.Tanh())
    assert digest(net) is None


def test_a_warm_compilation_traces_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_VERIFY", "1")
    net, x = net_of(load(tmp_path)), torch.randn(2, 4)
    with weft.config(cache_dir=tmp_path / "cache"):
        first = weft.compile(net, example_inputs=(x,))
        monkeypatch.setattr(program, "export_module", None)
        again = weft.compile(net_of(load(tmp_path)), example_inputs=(x,))
        monkeypatch.undo()
        change_weight(net)
        changed = weft.compile(net, example_inputs=(x,))
    np.testing.assert_array_equal(first(x), again(x))
    assert [p.name for p in again.inputs] == ["x"]
    with torch.no_grad():
        np.testing.assert_allclose(changed(x), net(x).numpy(), rtol=1e-5)
