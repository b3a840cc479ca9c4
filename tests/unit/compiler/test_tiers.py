"""The tier "fast": a first answer, and optimised code that takes its place between calls."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
from weft.compiler.program import model_code
from weft.runtime.devices.cpu.main_function import MainFunction
from weft.support.errors import OptionError

NET = """
def @main(%x: Tensor[(ROWS, 8), float32], %w: Tensor[(5, 8), float32]) {
  nn.softmax(nn.dense(exp(%x), %w))
}"""
COUNTER = """
def @main(%x: Tensor[(2,), float32], %total: Tensor[(2,), float32]) {
  %sum = add(%total, exp(%x)); (multiply(%sum, 2f), %sum)
}"""
X, W = (np.linspace(-1, 1, n * 8, dtype=np.float32).reshape(n, 8) for n in (3, 5))


@pytest.fixture
def gate(own_cache, monkeypatch):
    """Optimised code is made when this event is set."""
    event, make = threading.Event(), model_code.main_object

    def main_object(*arguments):
        if threading.current_thread() is not threading.main_thread():
            assert event.wait(20)
        return make(*arguments)

    monkeypatch.setattr(model_code, "main_object", main_object)
    yield event
    event.set()


def fast(text=NET, **options):
    return weft.compile(weft.parse(text.replace("ROWS", "3")), tier="fast", verify=1, **options)


def test_the_first_code_answers_and_the_optimised_code_gives_the_same_bits(gate):
    mod = fast()
    assert mod.tier == "fast"
    assert not isinstance(mod.launcher, MainFunction)
    assert "tier: fast: the optimised code is being made" in mod.explain()
    first, bound = mod(X, W), mod.bind(X, W)
    assert not mod.wait_until_optimized(timeout=0.01)
    gate.set()
    assert mod.wait_until_optimized()
    assert mod.tier == "full"
    assert isinstance(mod.launcher, MainFunction)
    assert "tier: full" in mod.explain()
    np.testing.assert_array_equal(mod(X, W), first)
    np.testing.assert_array_equal(bound(), first)
    np.testing.assert_array_equal(weft.compile(weft.parse(NET.replace("ROWS", "3")))(X, W), first)


def test_what_is_compiled_once_is_optimised_from_the_start(gate):
    gate.set()
    assert fast().wait_until_optimized()
    again = fast()
    assert again.tier == "full"
    assert "warm" in again.explain()


def test_symbolic_programs_change_their_tier_too(gate):
    mod = weft.compile(weft.parse(NET.replace("ROWS", "n")), tier="fast")
    first = mod(X, W)
    gate.set()
    assert mod.wait_until_optimized()
    np.testing.assert_array_equal(mod(X, W), first)
    np.testing.assert_array_equal(mod(X[:2], W), first[:2])


def test_state_stays_where_it_is(gate):
    mod = fast(COUNTER, state={"output1": "total"})
    one = np.ones(2, np.float32)
    first = mod(one)
    total = mod.state["total"]
    gate.set()
    assert mod.wait_until_optimized()
    np.testing.assert_array_equal(mod(one), 2 * first)
    assert mod.state["total"] is total


def test_calls_of_several_threads_go_on_while_the_code_changes(gate):
    mod = fast()
    expected, wrong, stop = mod(X, W), [], threading.Event()

    def call():
        while not stop.is_set():
            wrong.extend([1] * (not np.array_equal(mod(X, W), expected)))

    callers = [threading.Thread(target=call) for _ in range(3)]
    for caller in callers:
        caller.start()
    gate.set()
    assert mod.wait_until_optimized()
    stop.set()
    for caller in callers:
        caller.join()
    assert not wrong


def test_an_error_is_told_once_and_the_first_code_stays(own_cache, monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("no more memory")

    monkeypatch.setattr(model_code, "main_object", fails)
    with caplog.at_level(logging.WARNING, logger="weft.compiler"):
        mod = fast()
        assert not mod.wait_until_optimized()
        first = mod(X, W)
        np.testing.assert_array_equal(mod(X, W), first)
    assert len(caplog.records) == 1
    assert "no more memory" in caplog.text
    assert mod.tier == "fast"
    assert "no more memory" in mod.explain()


def test_exports_and_pickles_have_the_optimised_code(gate, tmp_path):
    mod = fast()
    expected = mod(X, W)
    gate.set()
    mod.export(tmp_path / "net.weft", check=False)
    assert mod.tier == "full"
    np.testing.assert_array_equal(weft.load(tmp_path / "net.weft")(X, W), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mod))(X, W), expected)


def test_an_interrupt_ends_the_waiting_alone(gate):
    mod = fast()
    main = threading.main_thread().ident
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        mod.wait_until_optimized(timeout=10)
    timer.join()
    gate.set()
    assert mod.wait_until_optimized()


def test_a_fork_waits_for_the_step_and_the_child_keeps_the_first_code(gate):
    mod = fast()
    expected = mod(X, W)
    opener = threading.Timer(0.2, gate.set)
    opener.start()
    child = os.fork()  # while the thread makes code
    if child == 0:
        sound = np.array_equal(mod(X, W), expected) and mod.wait_until_optimized() in (True, False)
        os._exit(0 if sound else 1)
    assert os.waitpid(child, 0)[1] == 0
    opener.join()
    assert mod.wait_until_optimized()


@pytest.mark.parametrize("end", ["pass", "os.kill(os.getpid(), signal.SIGINT)"],
                         ids=["exit", "interrupt"])
def test_an_interpreter_ends_while_code_is_made(tmp_path, end):
    code = (f"import os, signal, weft; mod = weft.compile(weft.parse({NET!r}"
            f".replace('ROWS', '3')), tier='fast'); print(mod.tier); {end}")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          timeout=60, check=False,
                          env={**os.environ, "WEFT_CACHE_DIR": str(tmp_path)})
    assert done.stdout.strip() in ("fast", "full")
    # Python forgets that an interrupt ended the program, and exits with 1, where a thread calls
    # ``exec`` meanwhile: imports of the thread that makes code do.
    assert done.returncode in ((0,) if end == "pass" else (-signal.SIGINT, 1))
    assert ("KeyboardInterrupt" in done.stderr) == (end != "pass")
    # The traceback may show the program, which is one line.
    rest = [line for line in done.stderr.splitlines() if line.strip() != code]
    assert not [line for line in rest if "Fatal" in line or "weft" in line]


def test_an_unknown_tier_is_refused():
    with pytest.raises(OptionError, match="tier cannot be used"):
        weft.compile(weft.parse(COUNTER), tier="slow")
