"""The table of knobs: environment, blocks, refusals."""

import os
import subprocess
import sys
import threading

import pytest

from weft.support.config import (
    config,
    knob_table,
    knobs,
    report_unknown_variables,
    unknown_variables,
)
from weft.support.errors import OptionError


def test_environment_is_read_at_each_access(monkeypatch):
    monkeypatch.delenv("WEFT_DEBUG", raising=False)
    assert config.debug == 0
    monkeypatch.setenv("WEFT_DEBUG", "5")
    assert config.debug == 5


def test_a_block_wins_over_the_environment_and_ends(monkeypatch):
    monkeypatch.setenv("WEFT_PRINT_AFTER", "fuse_ops, fold_constant")
    assert config.print_after == ("fuse_ops", "fold_constant")
    with config(print_after="all"):
        assert config.print_after == ("all",)
        with config(debug=3):
            assert (config.debug, config.print_after) == (3, ("all",))
    assert config.print_after == ("fuse_ops", "fold_constant")


def test_a_block_holds_in_its_own_thread_alone():
    seen = []
    with config(debug=6):
        thread = threading.Thread(target=lambda: seen.append(config.debug))
        thread.start()
        thread.join()
    assert seen == [0]


@pytest.mark.parametrize(("variable", "value"), [
    ("WEFT_DEBUG", "loud"), ("WEFT_DEBUG", "8"), ("WEFT_VERIFY", "-1"), ("WEFT_NO_CACHE", "maybe"),
    ("WEFT_CACHE_SIZE", "4X"), ("WEFT_CACHE_SIZE", "nan"), ("WEFT_CACHE_SIZE", "inf"),
    ("WEFT_THREADS", "0"),
])
def test_bad_environment_values_name_the_variable(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    name = next(n for n, k in knobs().items() if k.env == variable)
    with pytest.raises(OptionError) as caught:
        getattr(config, name)
    assert variable in str(caught.value)
    assert repr(value) in str(caught.value)


def test_unknown_options_get_a_suggestion():
    with pytest.raises(OptionError, match="did you mean 'verify'"), config(verfy=2):
        pass


def test_assignment_is_refused_with_the_way_that_works():
    with pytest.raises(OptionError, match=r"with weft.config\(debug=3\)"):
        config.debug = 3


def test_sizes_have_units():
    with config(cache_size="1.5G"):
        assert config.cache_size == 3 << 29
    with config(cache_size=4096):
        assert config.cache_size == 4096


def test_every_knob_has_a_line_in_the_table():
    table = knob_table()
    for knob in knobs().values():
        assert f"`{knob.env}`" in table
        assert knob.doc


def test_unknown_variables_are_reported_once_with_what_is_close(monkeypatch, caplog):
    for name in [n for n in os.environ if n.startswith("WEFT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("WEFT_THREAD", "2")
    monkeypatch.setenv("WEFT_XYZZY", "")
    monkeypatch.setenv("WEFT_CACHE_DIR", "/tmp")
    assert unknown_variables() == {"WEFT_THREAD": "WEFT_THREADS", "WEFT_XYZZY": None}
    report_unknown_variables.cache_clear()
    for _ in range(3):
        report_unknown_variables()
    report_unknown_variables.cache_clear()
    first, second = (record.getMessage() for record in caplog.records)
    assert first == "WEFT_THREAD is not a setting of weft; did you mean WEFT_THREADS?"
    assert "WEFT_XYZZY" in second
    assert "weft doctor" in second


@pytest.mark.parametrize("use", ["weft.parse('def @main() { 1 }')", "weft.load('missing')",
                                 "weft.compile('missing')"])
def test_whoever_uses_weft_is_told_of_a_misspelled_setting(use):
    code = f"import weft\nfor _ in range(2):\n  try: {use}\n  except weft.WeftError: pass"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "WEFT_DBUG": "3"})
    assert done.stderr == "WEFT_DBUG is not a setting of weft; did you mean WEFT_DEBUG?\n"
