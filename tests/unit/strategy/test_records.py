"""Files of tuning records, and selections made by them."""

from __future__ import annotations

import dataclasses
import json
import sqlite3

import pytest

from tests.unit.strategy.kernels import WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import var
from weft.ir.structural import structural_hash
from weft.strategy import lower_function
from weft.strategy.records import Record, active_records, cpu_of, read_records
from weft.strategy.selection import candidates
from weft.support.config import config
from weft.support.errors import OptionError
from weft.support.records_file import NO_RECORDS, default_records
from weft.target import CpuTarget
from weft.tune import TuningStore, Winner


def record(implementation="a", seconds=1.0, kernel="k", target=str(WIDE_CPU)):
    return Record(kernel, "some operator", target, implementation, seconds, 1)


def write_lines(path, *records):
    """A file of a former version."""
    path.write_text("".join(json.dumps(dataclasses.asdict(one)) + "\n" for one in records))


def write_winner(path, implementation, kernel="k", threads=1, cpu=None):
    with TuningStore(path) as store:
        store.set_winner(Winner(cpu or cpu_of(WIDE_CPU), kernel, implementation, "", 1.0, 2.0,
                                threads))


def matmul():
    x, w = var("x", (32, 48), "float32"), var("w", (64, 48), "float32")
    return primitive([x, w], op.nn.dense(x, w))


def test_lines_of_a_former_version_are_read_and_ranked(tmp_path):
    path = tmp_path / "r.jsonl"
    write_lines(path, record("slow", 3.0), record("fast", 1.0), record("middle", 2.0),
                record("other", 0.1, kernel="another"), record("far", 0.1, target="llvm"))
    assert read_records(path, 7).ranking("k", WIDE_CPU) == ("fast", "middle", "slow")
    write_lines(path, record("a", 1.0), record("b", 2.0), record("a", 5.0))
    assert read_records(path, 7).ranking("k", WIDE_CPU) == ("b", "a")


def test_an_incomplete_line_is_skipped(tmp_path):
    path = tmp_path / "r.jsonl"
    write_lines(path, record("a", 2.0))
    with path.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(record("b")))[:40])
    assert read_records(path, 1).ranking("k", WIDE_CPU) == ("a",)


@pytest.mark.parametrize("line", [
    "[]", "17", "{}", '{"kernel": 3}', "\x00\xff", "[" * 10_000,
    json.dumps({**dataclasses.asdict(record()), "seconds": -1}),
    json.dumps({**dataclasses.asdict(record()), "seconds": "fast"}),
    json.dumps({**dataclasses.asdict(record()), "kernel": None}),
])
def test_a_file_without_records_is_refused(tmp_path, line):
    path = tmp_path / "r.jsonl"
    path.write_text(line)
    with pytest.raises(OptionError, match="not a records file"):
        read_records(path, 1)


def test_winners_hold_for_a_cpu_and_a_number_of_threads(tmp_path):
    path = tmp_path / "r.sqlite"
    write_winner(path, "alone")
    write_winner(path, "beside", threads=2)
    write_winner(path, "elsewhere", cpu="another")
    assert read_records(path, 1).ranking("k", WIDE_CPU) == ("alone",)
    assert read_records(path, 2).ranking("k", WIDE_CPU) == ("beside",)
    assert read_records(path, 3).ranking("k", WIDE_CPU) == ()
    assert read_records(path, 1).digest != read_records(path, 2).digest
    # Measuring the machine again changes its text, not the CPU.
    again = dataclasses.replace(WIDE_CPU, l2_bytes=WIDE_CPU.l2_bytes * 2)
    assert read_records(path, 1).ranking("k", again) == ("alone",)


def test_winners_are_seen_while_the_database_is_open(tmp_path):
    path = tmp_path / "r.sqlite"
    with TuningStore(path) as store, config(records=path, threads=1):
        assert active_records().ranking("k", WIDE_CPU) == ()
        store.set_winner(Winner(cpu_of(WIDE_CPU), "k", "first", "", 1.0, 2.0, 1))
        assert active_records().ranking("k", WIDE_CPU) == ("first",)


def test_a_damaged_database_is_an_error(tmp_path):
    path = tmp_path / "r.sqlite"
    write_winner(path, "a")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
    with pytest.raises(OptionError, match="cannot be read"):
        read_records(path, 1)
    path.write_bytes(whole)
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version=99")
    database.close()
    with pytest.raises(OptionError, match="another format") as caught:
        read_records(path, 1)
    assert "tune again" in str(caught.value)


def test_the_error_for_a_missing_file_names_weft_tune(tmp_path):
    with config(records=tmp_path / "none"), pytest.raises(OptionError, match="weft tune"):
        lower_function(matmul(), WIDE_CPU)


def test_records_override_the_model(tmp_path):
    function, path = matmul(), tmp_path / "r.sqlite"
    chosen = candidates(function.body, WIDE_CPU)[0]
    space = chosen.space()
    point = space.name_of({**space.chosen, "mr": 3, "rows_first": 1})
    write_winner(path, point, structural_hash(function))
    with config(threads=1):
        assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.gemm"
        with config(records=path):
            assert check(function, WIDE_CPU).implementation == point
            with config(threads=2):
                assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.gemm"


def test_the_file_in_the_cache_folder_is_read_without_asking(tmp_path):
    function = matmul()
    with config(threads=1, cache_dir=tmp_path):
        write_winner(default_records(), "nn.dense.cpu.generic", structural_hash(function))
        assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.generic"
        with config(records=NO_RECORDS):
            assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.gemm"


@pytest.mark.parametrize("name", ["nn.dense.cpu.gone", "nn.dense.cpu.gemm[mr=99]"])
def test_records_of_unknown_implementations_are_skipped(tmp_path, name):
    function, path = matmul(), tmp_path / "r.sqlite"
    write_winner(path, name, structural_hash(function))
    with config(records=path, threads=1):
        assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.gemm"


def test_the_cpu_of_another_kind_of_target_is_its_text():
    assert cpu_of(CpuTarget.host()).startswith(CpuTarget.host().triple)
