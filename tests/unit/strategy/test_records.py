"""Files of tuning records, and selections made by them."""

from __future__ import annotations

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.strategy.kernels import WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import var
from weft.ir.structural import structural_hash
from weft.strategy import lower_function
from weft.strategy.records import Record, append_records, read_records
from weft.support.config import config
from weft.support.errors import OptionError


def record(implementation="a", seconds=1.0, kernel="k", target=str(WIDE_CPU)):
    return Record(kernel, "some operator", target, implementation, seconds, 1)


def matmul():
    x, w = var("x", (32, 48), "float32"), var("w", (64, 48), "float32")
    return primitive([x, w], op.nn.dense(x, w))


def test_appended_records_are_read_and_ranked(tmp_path):
    path = tmp_path / "deep" / "r.jsonl"
    append_records(path, [record("slow", 3.0), record("fast", 1.0)])
    append_records(path, [record("middle", 2.0), record("other", 0.1, kernel="another")])
    assert read_records(path).ranking("k", WIDE_CPU) == ("fast", "middle", "slow")


def test_a_later_record_replaces_an_earlier_one(tmp_path):
    path = tmp_path / "r.jsonl"
    append_records(path, [record("a", 1.0), record("b", 2.0)])
    append_records(path, [record("a", 5.0)])
    assert read_records(path).ranking("k", WIDE_CPU) == ("b", "a")


def test_records_of_other_targets_are_ignored(tmp_path):
    append_records(tmp_path / "r", [record(target="llvm -mcpu=other")])
    assert read_records(tmp_path / "r").ranking("k", WIDE_CPU) == ()


def test_an_incomplete_line_is_skipped(tmp_path):
    path = tmp_path / "r.jsonl"
    append_records(path, [record("a", 2.0)])
    with path.open("a") as file:
        file.write(json.dumps(dataclasses.asdict(record("b")))[:40])
    append_records(path, [record("c", 1.0)])
    assert read_records(path).ranking("k", WIDE_CPU) == ("c", "a")


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
        read_records(path)


def test_concurrent_writers_lose_no_record(tmp_path):
    path = tmp_path / "r.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: append_records(path, [record(f"i{n}", n + 1.0)]), range(40)))
    assert len(read_records(path).ranking("k", WIDE_CPU)) == 40


def test_the_error_for_a_missing_file_names_weft_tune(tmp_path):
    with config(records=tmp_path / "none"), pytest.raises(OptionError, match="weft tune"):
        lower_function(matmul(), WIDE_CPU)


def test_records_override_the_model(tmp_path):
    function, path = matmul(), tmp_path / "r.jsonl"
    assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.gemm"
    kernel = structural_hash(function)
    append_records(path, [record("nn.dense.cpu.gemm", 2.0, kernel),
                          record("nn.dense.cpu.generic", 1.0, kernel)])
    with config(records=path):
        assert check(function, WIDE_CPU).implementation == "nn.dense.cpu.generic"


def test_records_of_unknown_implementations_are_skipped(tmp_path):
    function, path = matmul(), tmp_path / "r.jsonl"
    append_records(path, [record("nn.dense.cpu.gone", 1.0, structural_hash(function))])
    with config(records=path):
        assert lower_function(function, WIDE_CPU).implementation == "nn.dense.cpu.gemm"
