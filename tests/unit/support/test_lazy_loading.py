"""Indexes of packages and registries that load their modules when first used."""

import os
import subprocess
import sys

import pytest

from tests.sampling import sampled
from tools.lazy_index import (
    LAYERS,
    OPERATOR_PACKAGES,
    ROOT,
    TABLES,
    names_of,
    stub_of,
    text_of,
)
from weft.ir.op import OPS
from weft.support.errors import RegistryError
from weft.support.registry import Registry


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.package)
def test_indexes_are_current(layer):
    """``python -m tools.lazy_index`` brings them up to date."""
    path = ROOT / layer.package.replace(".", "/") / "index.py"
    assert path.read_text(encoding="utf-8") == text_of(layer)


@pytest.mark.parametrize("package", [*OPERATOR_PACKAGES, *TABLES])
def test_type_checkers_see_the_public_names(package):
    path = ROOT / package.replace(".", "/") / "__init__.pyi"
    assert path.read_text(encoding="utf-8") == stub_of(package)


def test_public_names_follow_from_records():
    names = names_of("weft.op.nn")
    assert {"softmax", "SoftmaxAttrs"} <= set(names["weft.op.nn.softmax"])
    assert set(names["weft.op.elementwise"]) == {"relu", "leaky_relu"}
    assert "attend_cache" in names["weft.op.nn.cached_attention"]  # a function in __all__
    assert "qnn_add=add" in names_of("weft.op.qnn")["weft.op.qnn.arithmetic"]


def test_an_operator_loads_its_module_alone():
    code = """
import sys
from weft import op
from weft.ir import OPS
def loaded(): return {m for m in sys.modules if m.startswith("weft.op.nn.")}
print(len(loaded()), "nn.conv2d" in OPS, len(OPS) > 300, OPS.loaded())
{use}
print("weft.op.nn.conv" in loaded(), "weft.op.nn.pool" in loaded(), len(loaded()) < 15)
"""
    for use in ("op.nn.conv2d", "OPS.get('nn.conv2d')", "from weft.op.nn import conv2d",
                ("from weft.ir.text.parser import parse\nparse('def @main(%x: "
                 "Tensor[(1, 3, 8, 8), float32], %w: Tensor[(4, 3, 3, 3), float32]) "
                 "{ nn.conv2d(%x, %w) }')")):
        assert run(code.replace("{use}", use)) == ["0", "True", "True", "[]", "True", "False",
                                                   "True"], use


def test_an_operator_hides_the_module_of_its_name():
    code = """
import weft.op.nn.softmax, weft.op.einsum
from weft import op
from weft.op.nn import softmax
print(op.nn.softmax.name, softmax is op.nn.softmax, op.einsum.name, op.dyn.__name__)
"""
    assert run(code) == ["nn.softmax", "True", "einsum", "weft.op.dyn"]


@pytest.mark.slow
def test_every_module_of_operators_can_be_the_first():
    """In a process each, forked from one that has imported the layers below."""
    code = """
import importlib, os, sys
import weft.te
for name in sys.argv[1:] or sys.stdin.read().split():
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except BaseException as error:
            print(name, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    names = [str(p.relative_to(ROOT).with_suffix("")).replace(os.sep, ".")
             for p in (ROOT / "weft/op").rglob("*.py") if p.stem != "__init__"]
    drawn = " ".join(sampled("first modules", names, share=0.1))
    done = subprocess.run([sys.executable, "-c", code], input=drawn, text=True,
                          capture_output=True, check=True)
    assert not done.stdout


def test_names_of_a_package_are_listed_and_unknown_ones_refused():
    from weft import op

    assert {"nn", "add", "einsum"} <= set(dir(op))
    assert set(op.nn.__all__) <= set(dir(op.nn))
    with pytest.raises(AttributeError, match=r"module 'weft.op.nn' has no attribute 'nonsense'"):
        _ = op.nn.nonsense


def test_an_indexed_name_is_taken_before_its_module_is_imported(tmp_path, monkeypatch):
    (tmp_path / "indexed_entries.py").write_text(
        "from test_registry_of_this import TABLE\nTABLE.register('a', 1)\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = Registry("entry")
    table.add_index({"indexed_entries": "a b"})
    monkeypatch.setitem(sys.modules, "test_registry_of_this",
                        type(sys)("test_registry_of_this"))
    sys.modules["test_registry_of_this"].TABLE = table
    assert list(table) == ["a", "b"]
    assert "a" in table
    assert not table.loaded()
    with pytest.raises(RegistryError, match="entry 'a' is registered twice"):
        table.register("a", 2)
    assert table.get("a") == 1
    assert table.find("b") is None  # a wrong index: the module does not make it
    table.remove("a")
    assert "a" not in table
    table.register("a", 3)
    assert table.get("a") == 3


def test_names_close_to_one_that_is_not_loaded_are_suggested():
    with pytest.raises(RegistryError) as caught:
        OPS.get("nn.conv2dd")
    assert "nn.conv2d" in str(caught.value.help)
