"""The database of measurements: many writers, merges, files of a former version."""

from __future__ import annotations

import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from weft.support.errors import OptionError
from weft.tune import Sample, TuningStore, Winner

CPU = "some cpu"


def sample(name="p", seconds=1.0, *, kernel="k", cpu=CPU, threads=1, status="ok"):
    return Sample(cpu, kernel, threads, name, "text", seconds, 2.0, status, (1.0, 2.0))


def winner(name="w", seconds=1.0, *, kernel="k", cpu=CPU, threads=1):
    return Winner(cpu, kernel, name, "text", seconds, 2.0, threads)


def test_samples_are_kept_and_replaced(tmp_path):
    with TuningStore(tmp_path / "deep" / "r.sqlite") as store:
        store.add([sample("a"), sample("b", None, status="crashed"), sample("c", kernel="other")])
        store.add([sample("a", 3.0)])
        assert store.samples("k", CPU) == [sample("a", 3.0), sample("b", None, status="crashed")]
        assert len(store.samples()) == 3


def test_a_kernel_has_one_winner_for_each_number_of_threads(tmp_path):
    with TuningStore(tmp_path / "r.sqlite") as store:
        for one in (winner("a"), winner("b"), winner("c", threads=2)):
            store.set_winner(one)
        assert [w.implementation for w in store.winners()] == ["b", "c"]
        assert store.winner(CPU, "k", 1).gain == 2.0
        store.drop_winner(CPU, "k", 1)
        assert store.winner(CPU, "k", 1) is None
        assert store.winner(CPU, "k", 2) == winner("c", threads=2)


def write_samples(path, writer, count):
    with TuningStore(path) as store:
        for n in range(count):
            store.add([sample(f"{writer}.{n}")])
            store.set_winner(winner(f"{writer}.{n}", kernel=f"{writer}"))


def test_many_writers_lose_no_record(tmp_path):
    path = tmp_path / "r.sqlite"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: write_samples(path, n, 5), range(8)))
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_samples, args=(path, f"p{n}", 20)) for n in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    with TuningStore(path) as store:
        assert len(store.samples("k", CPU)) == 8 * 5 + 2 * 20
        assert len(store.winners()) == 8 + 2


def test_a_killed_writer_loses_at_most_its_last_change(tmp_path):
    path = tmp_path / "r.sqlite"
    code = ("import os, sys; from pathlib import Path; from tests.unit.tune.test_store import *\n"
            "store = TuningStore(Path(sys.argv[1])); store.add([sample('kept')])\n"
            "store._database.execute('BEGIN'); store._database.execute('DELETE FROM samples')\n"
            "os.kill(os.getpid(), 9)")
    done = subprocess.run([sys.executable, "-c", code, str(path)], timeout=60, check=False)
    assert done.returncode == -9
    with TuningStore(path) as store:
        assert [s.implementation for s in store.samples()] == ["kept"]


def test_merges_keep_the_later_sample_and_the_better_winner(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    with TuningStore(one) as store:
        store.add([sample("both", 1.0), sample("first")])
        store.set_winner(winner("slower", 1.5))
        store.set_winner(winner("faster", 0.5, kernel="other"))
    with TuningStore(two) as store:
        store.add([sample("both", 9.0), sample("second"), sample("third", cpu="another")])
        store.set_winner(winner("better", 1.0))
        store.set_winner(winner("worse", 1.0, kernel="other"))
    for order in ((one, two), (two, one)):
        into = tmp_path / f"of {order[0].name}"
        with TuningStore(into) as store:
            for part in (*order, order[0]):
                store.merge(part)
            assert {s.implementation: s.seconds for s in store.samples()} == {
                "both": 9.0, "first": 1.0, "second": 1.0, "third": 1.0}
            assert {w.kernel: w.implementation for w in store.winners()} == {
                "k": "better", "other": "faster"}


def lines(*times):
    return "".join(json.dumps({"kernel": "k", "text": "t", "target": "cpu", "implementation": n,
                               "seconds": s, "threads": 2}) + "\n" for n, s in times)


def test_files_of_a_former_version_are_merged(tmp_path):
    old = tmp_path / "old.jsonl"
    old.write_text(lines(("a", 3.0), ("b", 1.0), ("c", 2.0)))
    with TuningStore(tmp_path / "r.sqlite") as store:
        store.merge(old)
        assert store.winners() == [Winner("cpu", "k", "b", "t", 1.0, 3.0, 2)]


@pytest.mark.parametrize("content", ["", "no records", "SQLite format 4"])
def test_other_files_are_not_merged(tmp_path, content):
    (tmp_path / "old").write_text(content)
    with TuningStore(tmp_path / "r") as store, pytest.raises(OptionError, match="not a records"):
        store.merge(tmp_path / "old")


def test_a_file_of_another_kind_is_not_overwritten(tmp_path):
    old = tmp_path / "old.jsonl"
    old.write_text(lines(("a", 3.0)))
    with pytest.raises(OptionError, match="not a database of records") as caught:
        TuningStore(old)
    assert "weft records merge" in str(caught.value)
    assert old.read_text() == lines(("a", 3.0))


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be written"):
        TuningStore(tmp_path / "file" / "r.sqlite")
