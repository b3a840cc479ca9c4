"""``import weft`` is light: no compiler, no frontend, no device."""

import subprocess
import sys

import pytest

HEAVY = ("llvmlite", "onnx", "numba", "torch", "lark", "rich", "click")


def modules_after(statement):
    code = f"{statement}\nimport sys\nprint(*sorted(m.partition('.')[0] for m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import weft", "import weft; weft.config(debug=1)",
                                       "import weft; dir(weft)"])
def test_nothing_heavy_is_imported(statement):
    assert not modules_after(statement) & set(HEAVY)


def test_the_functional_ir_is_light_too():
    assert not modules_after("import weft.ir, weft.op") & set(HEAVY)


def test_import_takes_under_150_ms():
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import weft"],
                          capture_output=True, text=True, check=True)
    line = next(x for x in done.stderr.splitlines() if x.endswith("| weft"))
    microseconds = int(line.split("|")[1])
    assert microseconds < 150_000


def test_public_names_exist_and_unknown_ones_are_refused():
    import weft

    assert {"compile", "load", "parse", "config", "WeftError"} <= set(dir(weft))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = weft.nonsense
