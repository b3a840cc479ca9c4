"""``weft ops --where``: the files that know an operator."""

import importlib
import json
import re
from pathlib import Path

import pytest

from tests.unit.cli.commands import run
from weft.cli.operator_places import PACKAGE, operators_called, places_of
from weft.ir.op import OPS

TUTORIAL = PACKAGE.parent / "docs/tutorials/add_operator.md"
FRONT_ENDS = {"ONNX", "torch", "GraphDef", "NNVM"}


def written(name):
    """The files of a person who adds the operator; tests and pages follow from its cases."""
    return [p for p in places_of(OPS.get(name)) if not p.role.startswith(("test", "page"))]


def test_softmax_is_found_wherever_it_is_known():
    found = {}
    for place in places_of(OPS.get("nn.softmax")):
        found.setdefault(place.role, []).append(str(place))
    assert found["definition"] == ["weft/op/nn/softmax.py"]
    assert found["compute"] == ["weft/topi/nn/norm.py"]
    assert found["hook fast_form"] == ["weft/op/fast_math.py"]
    assert found["strategy cpu"] == ["weft/strategy/cpu/reduction/decide.py"]
    assert found["strategy cuda"] == ["weft/strategy/cuda/reduction/decide_group.py"]
    assert {"weft/frontend/onnx/ops/activation.py"} <= set(found["ONNX"])
    assert {"weft/frontend/torch/aten/activation.py"} <= set(found["torch"])
    assert {"weft/compat/graphdef/ops/nn.py"} <= set(found["GraphDef"])
    assert {"weft/eager/functions/reduction.py"} <= set(found["eager"])
    assert {"weft/nn/functional/activation.py"} <= set(found["nn"])
    assert {"weft/transform/fusion/attention_pattern.py"} <= set(found["passes"])
    assert {"tests/unit/transform/test_small_passes.py"} <= set(found["test"])
    assert {"docs/operators/nn.softmax.md"} <= set(found["page (generated)"])


def test_an_operator_outside_of_weft_is_one_file(tmp_path, monkeypatch):
    """That of the tutorial, with attributes, gradient, cases and a strategy."""
    source = re.search(r"```python\n# acme_ops\.py\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)[1]
    (tmp_path / "acme_where.py").write_text(source.replace("acme.cumprod", "acme.where_it_is"))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("acme_where")
    try:
        places = written("acme.where_it_is")
        assert [(p.role, Path(p.file).name) for p in places] == [("definition", "acme_where.py")]
    finally:
        OPS.remove("acme.where_it_is")


@pytest.mark.parametrize("name", ["acosh", "bitwise_or", "left_shift", "nn.lrn", "trunc"])
def test_an_operator_with_all_surfaces_is_at_most_six_files(name):
    """StableHLO, TensorFlow Lite, the array API and the writers of formats are a file each, beside
    these.
    """
    beside = ("StableHLO", "TensorFlow Lite", "array API", "writers")
    places = [p for p in written(name) if p.role not in beside]
    assert len({p.role for p in places} & FRONT_ENDS) >= 2
    assert len(places) <= 6, list(map(str, places))


@pytest.mark.parametrize("name", ["nn.fifo_buffer", "vision.yolo_reorg", "nn.sparse_conv2d",
                                  "nn.bitpack"])
def test_an_operator_without_names_elsewhere_is_at_most_three_files(name):
    assert len(written(name)) <= 3


def test_the_command_takes_the_last_part_of_a_name(capsys):
    assert operators_called("softmax") == ["nn.softmax", "qnn.softmax"]
    _, out, _ = run(["ops", "--where", "yolo_reorg"], capsys)
    assert "vision.yolo_reorg: 2 files" in out
    assert re.search(r"definition +weft/op/vision/yolo_reorg\.py", out)
    found = json.loads(run(["ops", "--where", "relu", "--json"], capsys)[1])
    assert {"role": "definition", "file": "weft/op/elementwise.py"} in found["nn.relu"]
