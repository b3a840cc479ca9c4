"""``weft inspect`` of models with symbolic sizes: ranges, variants, work, reasons."""

from __future__ import annotations

import re

import pytest

import weft
from tests.unit.cli.commands import run
from weft.compiler.report.page import html_report
from weft.compiler.report.sizes import kernel_rows, range_words

TARGET = "llvm -mcpu=haswell"
TEXT = """
def @main(%x: Tensor[(n{1..512}, 16), float32], %w: Tensor[(32, 16), float32]) {
  nn.softmax(nn.dense(%x, %w))
}"""


@pytest.fixture
def path(tmp_path, own_cache):
    (tmp_path / "m.ir").write_text(TEXT)
    return str(tmp_path / "m.ir")


def test_symbols_and_work_at_typical_sizes(path, capsys):
    code, out, _ = run(["inspect", path], capsys)
    assert code == 0
    assert "one program for all sizes" in out
    assert re.search(r"^n +1 to 512 +axis 0 of x: n *$", out, re.MULTILINE)
    assert "MFLOP at n=64" in out
    assert re.search(r"^0 +nn.dense +all +nn.dense.cpu.\w+ +0.066 +\d+\.\d *$", out, re.MULTILINE)
    assert re.search(r"^arena \d+\.\d\d MB at n=64$", out, re.MULTILINE)
    assert re.search(r"^peak memory of a call \d+\.\d\d MB: arena \d+\.\d\d, constants", out,
                     re.MULTILINE)
    assert "symbolic" not in out.partition("decisions")[0]


def test_estimates_of_convolutions_are_for_the_sizes_that_the_table_names(tmp_path):
    """Algorithms are compared for one image of the usual size, whatever sizes are typical."""
    text = """def @main(%x: Tensor[(SIZES), float32], %w: Tensor[(16, 3, 3, 3), float32]) {
      nn.conv2d(%x, %w, padding=(1, 1)) }"""
    seconds = {}
    for sizes in ("n, 3, 32, 32", "64, 3, 32, 32", "1, 3, h, h", "1, 3, 64, 64"):
        model = weft.compile(weft.parse(text.replace("SIZES", sizes)), target=TARGET)
        seconds[sizes] = sum(step.seconds for step in model.manifest.steps)
        if "n" in sizes:
            assert re.search(r"estimated \d+\.\d us at n=1$", model.as_text("decisions"),
                             re.MULTILINE)
    assert 0.5 < seconds["n, 3, 32, 32"] / seconds["64, 3, 32, 32"] < 2
    assert 0.5 < seconds["1, 3, h, h"] / seconds["1, 3, 64, 64"] < 2


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_reasons_of_programs_for_one_set_of_shapes(path, capsys, monkeypatch):
    code, out, _ = run(["inspect", path, "--input-shape", "x:?x16"], capsys)
    assert code == 0
    assert "a program for each set of input shapes" in out
    assert "only run time determines" in out
    monkeypatch.setenv("WEFT_SYMBOLIC_SIZES", "0")
    assert "WEFT_SYMBOLIC_SIZES=0 asks" in run(["inspect", path], capsys)[1]
    code, _, err = run(["inspect", path, "--html", path + ".html"], capsys)
    assert code == 1
    assert "not compiled for all sizes: WEFT_SYMBOLIC_SIZES=0" in err


def test_variants_are_listed_below_their_kernel():
    model = weft.compile(weft.parse(TEXT), specialize={"n": [1, (2, 16)]})
    rows = kernel_rows(model.manifest, model.manifest.steps)
    assert [row[2] for row in rows[:3]] == ["all", "n: 1", "n: 2 to 16"]
    assert [row[0] for row in rows[:3]] == ["0", "", ""]
    page = html_report(model, title="m.ir")
    assert "<td>n: 2 to 16</td>" in page
    assert "<td>1 to 512</td>" in page
    assert "at n=64" in page


def test_the_table_has_the_variants_that_specialize_asks_for(path, capsys):
    code, out, _ = run(["inspect", path, "--specialize", "n=1,128", "--specialize", "n=2..16"],
                       capsys)
    assert code == 0
    rows = re.findall(r"^ +n: ([\w ]+?)  +nn.dense.cpu.\w+ +(\d+\.\d)", out, re.MULTILINE)
    assert [sizes for sizes, _ in rows][:3] == ["1", "128", "2 to 16"]
    times = [float(time) for _, time in rows]
    assert times[0] < times[1]
    code = run(["compile", path, "--specialize", "n=2", "-o", path + ".weft"], capsys)[0]
    assert code == 0
    tests = [t for s in weft.load(path + ".weft").manifest.steps for v in s.variants
             for t in v.tests]
    assert any((test.low, test.high) == (2, 2) for test in tests)


@pytest.mark.parametrize("wrong", ["n:1", "n=", "=1", "n=a", " ", "n=1..", "n=-1"])
def test_wrong_sizes_to_specialize_are_refused(path, capsys, wrong):
    code, _, err = run(["inspect", path, "--specialize", wrong], capsys)
    assert code == 2
    assert "--specialize" in err


def test_fixed_sizes_show_no_ranges(path, capsys):
    out = run(["inspect", path, "--input-shape", "x:5x16"], capsys)[1]
    assert "MFLOP\n" in re.sub(" +\n", "\n", out)
    assert "symbol" not in out.partition("decisions")[0]


def test_ranges_in_words():
    assert [range_words(*r) for r in ((1, 1), (0, None), (2, 16), (8, None, 8))] == [
        "1", "0 or more", "2 to 16", "8 or more, a multiple of 8"]
