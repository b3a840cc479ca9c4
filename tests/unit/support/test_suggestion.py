"""Unknown names are answered with the nearest known ones, wherever names are given."""

from collections.abc import Callable

import pytest

import weft
from weft import op
from weft.ir.dtype import DType
from weft.ir.op import get_op
from weft.support.suggestion import did_you_mean, nearest

_F = "def @main(%x: Tensor[(4,), float32]) { tanh(%x) }"


def test_the_nearest_names_come_first_in_their_own_case():
    assert nearest("conv2D", ["Conv2d", "conv3d", "pool"])[0] == "Conv2d"
    assert nearest("xyz", ["Conv2d"]) == []
    assert did_you_mean("tahn", ["tanh"]) == "did you mean 'tanh'?"
    assert did_you_mean("xyz", ["tanh"]) is None
    assert did_you_mean("xyz", ["tanh"], "look elsewhere") == "look elsewhere"


_UNKNOWN: dict[str, tuple[Callable[[], object], str]] = {
    "option": (lambda: weft.compile(weft.parse(_F), opt_lvl=2), "opt_level"),
    "setting": (lambda: weft.compile(weft.parse(_F), cache_dri="x"), "cache_dir"),
    "setting of a block": (lambda: weft.config(dbug=1).__enter__(), "debug"),
    "operator in text": (lambda: weft.parse(_F.replace("tanh", "tahn")), "tanh"),
    "attribute": (lambda: weft.parse(_F.replace("tanh(%x)", "sum(%x, axs=0)")), "axis"),
    "dtype in text": (lambda: weft.parse(_F.replace("float32", "flot32")), "float32"),
    "dtype": (lambda: DType.parse("flaot16"), "float16"),
    "operator": (lambda: get_op("tahn"), "tanh"),
    "operator in Python": (lambda: op.tahn, "tanh"),
    "name of weft": (lambda: weft.compil, "compile"),
    "CPU": (lambda: weft.compile(weft.parse(_F), target="llvm -mcpu=haswel"), "haswell"),
    "feature": (lambda: weft.compile(weft.parse(_F), target="llvm -mattr=+avx512ff"), "avx512f"),
    "target": (lambda: weft.compile(weft.parse(_F), target="lvm"), "llvm"),
    "option of a target": (lambda: weft.compile(weft.parse(_F), target="llvm -mcp=haswell"),
                           "-mcpu="),
    "GPU": (lambda: weft.compile(weft.parse(_F), target="cuda -arch=sm_9a"), "sm_90a"),
    "stage": (lambda: weft.compile(weft.parse(_F)).as_text("optimised"), "optimized"),
    "device": (lambda: weft.compile(weft.parse(_F), devices=["smi:1"]), "sim"),
    "placement": (lambda: weft.compile(weft.parse(_F), devices=["sim:0", "sim:1"],
                                       placement="costs"), "cost"),
    "input": (lambda: weft.compile(weft.parse(_F), inputs={"xx": (4,)}), "x"),
    "output": (lambda: weft.compile(weft.parse(_F), outputs=["tahn"]), "tanh"),
}


@pytest.mark.parametrize("kind", sorted(_UNKNOWN))
def test_an_unknown_name_is_answered_with_the_nearest(kind):
    use, near = _UNKNOWN[kind]
    with pytest.raises((weft.WeftError, AttributeError)) as caught:
        use()
    assert "did you mean" in str(caught.value)
    assert near in str(caught.value).rpartition("did you mean")[2]


def test_all_options_of_a_compilation_are_listed():
    with pytest.raises(weft.WeftError) as caught:
        weft.compile(weft.parse(_F), quickly=True)
    for name in ("target", "inputs", "opt_level", "outputs", "devices", "threads", "debug"):
        assert f" {name}," in str(caught.value)


def test_names_that_python_asks_for_get_no_suggestion():
    with pytest.raises(AttributeError) as caught:
        op._tanh
    assert "did you mean" not in str(caught.value)
