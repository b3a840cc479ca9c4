"""The options for programs on several devices, and what is shown of them."""

from __future__ import annotations

import pytest

import weft
from tests.unit.cli.commands import run
from tests.unit.compiler.devices.placing import sims
from weft.compiler.report.page import html_report

TOWERS = """def @main(%x: Tensor[(16, 16), float32], %y: Tensor[(16, 16), float32]) {
  let %a = nn.softmax(nn.dense(%x, %y));
  let %b = tanh(nn.dense(%y, %x));
  nn.dense(%a, %b)
}"""


@pytest.fixture
def model(tmp_path, own_cache):
    path = tmp_path / "towers.ir"
    path.write_text(TOWERS, encoding="utf-8")
    return path


def test_inspect_shows_lanes_and_memory(model, capsys):
    code, out, err = run(["inspect", model, "--devices", "sim:0,sim:1", "--placement",
                          "a=sim:0,b=sim:1", "--stage", "placement"], capsys)
    assert code == 0, err
    for text in ("sim:1 -> sim:0  1024 bytes", "cpu:0 -> sim:1", "peak [bytes]", "estimated"):
        assert text in out


def test_compile_writes_artifacts_for_devices(model, capsys):
    code, _, err = run(["compile", model, "--devices", "sim:0,sim:1", "--placement", "cost"],
                       capsys)
    assert code == 0, err
    loaded = weft.load(model.with_suffix(".weft"))
    assert [str(one) for one in loaded.manifest.devices] == ["sim:0", "sim:1"]


@pytest.mark.parametrize(("arguments", "text"), [
    (["--devices", "sim:0,tpu:1"], "tpu:1"),
    (["--placement", "cost"], "several devices"),
    (["--devices", "sim:0", "--placement", "a=sim:4"], "sim:4"),
    (["--devices", "sim:0", "--placement", "a=sim:0,b"], "TENSOR=DEVICE"),
])
def test_wrong_options(model, arguments, text, capsys):
    code, _, err = run(["inspect", model, *arguments], capsys)
    assert code in (1, 2)
    assert text in err


def test_soft_placement(model, capsys):
    code, out, _ = run(["inspect", model, "--devices", "sim:0", "--placement", "a=sim:4",
                        "--soft-placement"], capsys)
    assert code == 0
    assert "sim:4" not in out


@pytest.mark.slow
@pytest.mark.usefixtures("own_cache")
def test_the_page_draws_a_lane_for_each_device_and_link():
    mod = weft.compile(weft.parse(TOWERS), devices=sims(2), placement={"a": "sim:0", "b": "sim:1"})
    page = html_report(mod, title="towers")
    drawing = page[page.index('<svg class="lanes"'):]
    drawing = drawing[:drawing.index("</svg>")]
    assert drawing.count('class="copy"') == 6
    assert drawing.count('class="kernel"') == len(mod.manifest.steps) - 6
    assert "sim:1 -&gt; sim:0" in drawing
