"""``--plot``: commands draw what they measured."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import pytest

from tests.unit.cli.commands import run
from weft.compiler.report.plots import Bar, bars_svg, times_plot

pytestmark = pytest.mark.usefixtures("cache_of_module")
NAMES = "{http://www.w3.org/2000/svg}"


def bars_of(text):
    """The width of each bar by its label, without the text of its value."""
    root = ET.fromstring(text)
    return {group.findtext(f"{NAMES}title").rsplit(": ", 1)[0]:
            float(group.find(f"{NAMES}rect").get("width")) for group in root.iter(f"{NAMES}g")}


@pytest.mark.parametrize("command", [["bench", "--repeat", "3", "--json"], ["profile"], ["debug"]],
                         ids=lambda one: one[0])
def test_commands_draw_what_they_measured(command, tmp_path, capsys):
    (tmp_path / "net.ir").write_text("def @main(%x: Tensor[(3,), float32]) { exp(tanh(%x)) }")
    code, out, err = run([*command, str(tmp_path / "net.ir"), "--plot", str(tmp_path / "p.svg")],
                         capsys)
    assert code == 0, err
    assert "wrote" in err
    assert "wrote" not in out
    assert bars_of((tmp_path / "p.svg").read_text())


def test_a_plot_that_cannot_be_written_is_refused_before_anything_runs(tmp_path, capsys):
    code, _, err = run(["calibrate", "--plot", str(tmp_path / "none" / "p.svg")], capsys)
    assert code == 1
    assert "none" in err


def test_bars_are_as_long_as_their_values():
    text = bars_svg("a & b", [Bar("<one>", 1.0, "1"), Bar("four", 4.0, "4", mark=2.0)])
    found = bars_of(text)
    assert found["four"] == 4 * found["<one>"]
    mark = float(re.search(r'class="m" d="M([0-9.]+)', text)[1])
    assert mark - 330 == pytest.approx(found["four"] / 2)


def test_logarithmic_bars_begin_at_the_least_value_and_take_infinities():
    found = bars_of(bars_svg("", [Bar("a", 1e-9, ""), Bar("b", 1e-6, ""), Bar("c", 1e-3, ""),
                                  Bar("d", float("inf"), ""), Bar("e", float("nan"), "")],
                             least=1e-9))
    assert found["c"] == found["d"] == pytest.approx(2 * found["b"])
    assert found["a"] == found["e"] == 1


def test_many_bars_are_cut_with_a_note():
    assert "60 more are not shown" in bars_svg("", [Bar(str(n), n, "") for n in range(100)])


def test_all_runs_are_in_the_plot_of_times():
    text = times_plot("", [1.0, 2.0, 2.0, 9.0])
    counts = [int(re.search(": ([0-9]+)$", title.text)[1])
              for title in ET.fromstring(text).iter(f"{NAMES}title")]
    assert sum(counts) == 4
    assert times_plot("", [1.0])
