"""Ctrl-C at any moment of the first compilation: the process can compile afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.compiler.build import kernels as build
from weft.compiler.build import worker_pool
from weft.compiler.program.lowering import lower_program
from weft.support.errors import RegistryError
from weft.support.interpreter import interrupts_blocked, interrupts_held
from weft.support.registry import Registry
from weft.target import CpuTarget

SIX_KERNELS = """
def @main(%x: Tensor[(4, 6), float32]) {
  %0 = nn.softmax(tanh(%x));
  %1 = nn.softmax(sqrt(%0));
  %2 = nn.softmax(exp(%1));
  %3 = nn.softmax(sqrt(%2));
  %4 = nn.softmax(negative(%3));
  sum(nn.softmax(tanh(%4)), axis=(1,))
}"""

# The processes compile an ONNX model and a program, and print "right" at the end.
_PROGRAM = f'''
import sys
import numpy as np
import weft

def compile_all():
    weft.compile(sys.argv[1])
    mod = weft.compile(weft.parse("""{SIX_KERNELS}"""), build_jobs=2)
    np.testing.assert_allclose(mod(np.ones((4, 6), np.float32)), np.ones(4), rtol=1e-5)
'''

# Interrupts every attempt after some more lines of modules of weft than the one before it.
_IN_IMPORTS = _PROGRAM + """
def trace(frame, event, arg):
    name = frame.f_globals.get("__name__", "")
    return count if name.startswith("weft.") and frame.f_code.co_name == "<module>" else None

def count(frame, event, arg):
    global left
    left -= event == "line"
    if left == 0:
        raise KeyboardInterrupt
    return count

interrupted = 0
while True:
    left = step * (interrupted + 1)
    sys.settrace(trace)
    try:
        compile_all()
        break
    except KeyboardInterrupt:
        interrupted += 1
    finally:
        sys.settrace(None)
assert interrupted > 5
compile_all()
print("right")
"""

_SIGNALS = _PROGRAM + """
import os, signal, threading, time

def shoot(delay, seen):
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGINT)
    while not seen.wait(15):  # Python drops what a weak reference's callback raises
        os.kill(os.getpid(), signal.SIGINT)

for delay in map(float, sys.argv[2].split(",")):
    seen = threading.Event()
    shooter = threading.Thread(target=shoot, args=(delay, seen))
    shooter.start()
    try:
        compile_all()
        while True:
            time.sleep(1)
    except KeyboardInterrupt:
        seen.set()
    shooter.join()
compile_all()
assert threading.active_count() == 1
try:
    os.waitpid(-1, os.WNOHANG)
    raise SystemExit("a worker is left")
except ChildProcessError:
    print("right")
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, 4]) for name in "xy"]
    nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Softmax", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def check_run(program: str, *arguments: object, cache: Path) -> None:
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], check=False,
                          capture_output=True, text=True, timeout=300,
                          env={**os.environ, "WEFT_CACHE_DIR": str(cache)})
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
    assert "Traceback" not in done.stderr or "Exception ignored" in done.stderr


@pytest.mark.sample(0.3, 1)
@pytest.mark.parametrize("step", [31, *(pytest.param(n, marks=pytest.mark.slow)
                                         for n in (83, 11))])
def test_imports_that_are_cut_short_are_run_again(model, tmp_path, step):
    check_run(f"step = {step}\n{_IN_IMPORTS}", model, cache=tmp_path / "cache")


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow)
                                       for n in range(1, 8))])
def test_ctrl_c_during_the_first_compile(model, tmp_path, seed):
    delays = np.random.default_rng(seed).uniform(0, [1, 0.1, 0.3, 1, 2, 2])
    check_run(_SIGNALS, model, ",".join(map(str, delays)), cache=tmp_path / "cache")


def test_workers_end_with_an_interrupt(monkeypatch):
    kernels = lower_program(weft.ir.infer_type(weft.ir.parse(SIX_KERNELS))).kernels
    workers: list[worker_pool.Worker] = []
    at_work = threading.Event()

    def interrupted(*_):
        at_work.wait(60)
        raise KeyboardInterrupt

    def build_forever(worker, kernel, target):
        workers.append(worker)
        process = worker._start()
        at_work.set()
        process.wait()
        raise EOFError

    monkeypatch.setattr("weft.compiler.build.kernel.build_kernel", interrupted)
    monkeypatch.setattr(worker_pool.Worker, "build", build_forever)
    monkeypatch.setattr(worker_pool.Worker, "_start", _start_sleeping)
    threads = threading.active_count()
    with weft.config(no_cache=True, build_jobs=2), pytest.raises(KeyboardInterrupt):
        build.build_kernels(kernels, CpuTarget.host())
    assert [worker._process.returncode for worker in workers] == [-signal.SIGKILL]
    assert threading.active_count() == threads


def _start_sleeping(worker):
    code = "import time; time.sleep(600)"
    worker._process = subprocess.Popen([sys.executable, "-c", code],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return worker._process


def interrupt(times: int, reached: list[int]) -> None:
    for _ in range(times):
        os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.01)
    reached.append(times)


def test_an_interrupt_waits_for_the_end_of_the_block():
    reached: list[int] = []
    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt), interrupts_held():
            interrupt(times, reached)
    assert reached == [1]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_user_is_left_alone():
    def own(*_):
        raise ValueError("own")

    before = signal.signal(signal.SIGINT, own)
    try:
        with pytest.raises(ValueError, match="own"), interrupts_held():
            interrupt(1, [])
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)


def test_children_do_not_get_the_interrupt():
    code = "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('on')"
    with interrupts_blocked():
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (child.returncode, child.stdout) == (0, b"on\n")
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()


def test_registrations_are_repeated_by_a_later_import_alone(tmp_path, monkeypatch):
    registry: Registry[str] = Registry("thing")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(weft, "things", registry, raising=False)
    monkeypatch.setattr(weft, "first", True, raising=False)
    code = "import weft\nweft.things.register('a', __name__)\n"
    (tmp_path / "thing_one.py").write_text(code + "if weft.first:\n  raise KeyboardInterrupt\n")
    (tmp_path / "thing_two.py").write_text(code)
    (tmp_path / "thing_twice.py").write_text("import weft\n" + 2 * code.replace("'a'", "'b'"))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            __import__("thing_one")
    weft.first = False
    __import__("thing_one")
    assert registry.get("a") == "thing_one"
    for other in ("thing_two", "thing_twice"):
        with pytest.raises(RegistryError, match="registered twice"):
            __import__(other)
    del sys.modules["thing_one"]
