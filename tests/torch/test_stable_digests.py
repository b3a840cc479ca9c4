"""Digests of awkward modules are the same in processes of other hash seeds, folders and imports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import weft

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEAD = """
import abc, collections, dataclasses, enum, functools, math, re, types
from pathlib import Path
import numpy as np
import torch
from torch import nn, randn
from torch.nn.functional import gelu
from math import sqrt
HERE = Path(__file__).parent
NAMES = {"relu", "tanh", "gelu", "exp", "sigmoid"}
PAIRS = frozenset({("a", 1), ("b", 2), ("c", 3)})
ORDER = {"b": 1, "a": 2}
RATE = re.compile("a+", re.IGNORECASE)
KIND, NUMBER, LIST = np.dtype("float16"), np.float32(2.5), np.arange(4.0)
UFUNC, UPPER, MERGE, BOUND = np.exp, str.upper, dict.fromkeys, ORDER.get
class Mode(enum.Enum):
    FAST = "fast"
class Bits(enum.Flag):
    A = 1
    B = 2
@dataclasses.dataclass(frozen=True)
class Config:
    size: int = 3
    names: tuple = ("x", "y")
    extra: dict = dataclasses.field(default_factory=dict)
@dataclasses.dataclass(slots=True)
class Slotted:
    size: int = 4
class Point(collections.namedtuple("Point", "x y")):
    pass
class Plain:
    __slots__ = ("left", "right")
    def __init__(self):
        self.left, self.right = 1, 2
class Base(abc.ABC):
    factor = 2
    @property
    def doubled(self): return 2 * self.factor
    @staticmethod
    def half(x): return x / 2
    @classmethod
    def of(cls): return cls()
class Child(Base):
    pass
CONFIG, SLOTTED, POINT, PLAIN, CHILD = Config(), Slotted(), Point(1, 2), Plain(), Child()
COUNTS = collections.Counter("aab")
LISTS = collections.defaultdict(list, {"a": [1]})
SPACE = types.SimpleNamespace(a=1)
@functools.lru_cache
def cached(n): return n + 1
def scale(x, *, by=2.0, how=("a",)): return x * by
SCALED = functools.partial(scale, by=3.0)
ADD = lambda x: x + 1
METHOD = CHILD.half
STREAM = torch.Generator()
"""
# What the forward function of each module reads beside its input.
READS = {
    "a builtin of torch": "randn", "a function of C": "gelu", "one of math": "sqrt",
    "a set of texts": "NAMES", "a set of pairs": "PAIRS", "a dict": "ORDER", "a pattern": "RATE",
    "a dtype": "KIND", "a scalar": "NUMBER", "an array": "LIST", "a ufunc": "UFUNC",
    "a descriptor": "UPPER", "a class method of C": "MERGE", "a bound method of C": "BOUND",
    "an enum": "Mode.FAST", "flags": "Bits.A | Bits.B", "a dataclass": "CONFIG",
    "a class of a dataclass": "Config", "a dataclass with slots": "SLOTTED",
    "a named tuple": "POINT", "slots": "PLAIN", "an abstract class": "CHILD",
    "a counter": "COUNTS", "a defaultdict": "LISTS", "a namespace": "SPACE",
    "a cached function": "cached", "a partial": "SCALED", "a lambda": "ADD",
    "a static method": "METHOD", "the folder of the file": "HERE", "the file": "__file__",
    "the set in a test": "1 if 'a' in {'a', 'b', 'c'} else 2",
}
REFUSED = {
    "a generator": ("STREAM", "Generator"), "the environment": ("__import__('os').environ", "uses"),
    "an address": ("id(x)", "uses id"), "the hash of a text": ("hash('a')", "uses hash"),
    "a file": ("np.load(HERE / 'a.npy')", "numpy.load, which reads a file"),
    "a tensor": ("torch.Tensor.add(x, LOOSE)", "a Tensor that is not part of the model"),
}
CLASS = """
class Net{number}(nn.Module):
    def forward(self, x):
        read = {read}
        return x + 1
"""
CHILD = """
import json, sys
sys.path.insert(0, sys.argv[1])
if len(sys.argv) > 2:
    import torch._dynamo, torch.export, weft  # what a warm process has not imported
import torch, awkward
from weft.frontend.torch.module_digest import module_digest
def shown(kind):
    found = module_digest(kind(), (torch.ones(2),))
    return ["", found] if isinstance(found, str) else [found.text, ""]
count = int(awkward.COUNT)
print(json.dumps([shown(getattr(awkward, f"Net{n}")) for n in range(count)]))
"""


def digests(folder: Path, seed: str, *more: str) -> list[Any]:
    folder.mkdir()
    reads = [*READS.values(), *(read for read, _ in REFUSED.values())]
    code = HEAD + "LOOSE = torch.ones(2)\n" + f"COUNT = {len(reads)}\n"
    code += "".join(CLASS.format(number=n, read=read) for n, read in enumerate(reads))
    (folder / "awkward.py").write_text(code)
    path = os.pathsep.join([str(Path(weft.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
    made = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD, str(folder), *more],
                          env=env, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout)


def test_digests_are_those_of_another_process(tmp_path: Path) -> None:
    first = digests(tmp_path / "one", "0")
    second = digests(tmp_path / "other", "4321", "imports")
    known = dict(zip(READS, first, strict=False))
    assert {name: why for name, (text, why) in known.items() if not text} == {}
    changed = [name for name, one, other in zip(READS, first, second, strict=False) if one != other]
    assert changed == []
    assert len({text for text, _ in known.values()}) == len(known)  # each module has its own
    for (name, (_, why)), (text, reason) in zip(REFUSED.items(), first[len(READS):], strict=True):
        assert (text, why in reason) == ("", True), f"{name}: {reason}"
