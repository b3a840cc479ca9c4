"""A rank that dies, stops or hangs is named on all others within 30 seconds."""

import signal
import subprocess
import sys
import time

import pytest

from tests.scale import ranks

pytestmark = pytest.mark.torch

STEPS = """
import sys, time, numpy as np, weft.distributed as d
world = d.init()
print("ready", flush=True)
for step in range(10**6):
    try:
        world.all_reduce(np.ones(1000, np.float32))
    except Exception:
        print(time.monotonic(), flush=True)  # of the machine: all processes have the same clock
        raise
    if step == 20 and world.rank == 1 and sys.argv[1] == "sleep":
        time.sleep(100)
    time.sleep(0.01)
"""


@pytest.mark.sample(0.25, least=1)
@pytest.mark.parametrize(("fault", "victim", "said"), [
    ("kill", 1, "rank 1 is dead or stopped"),
    ("stop", 2, "rank 2 is dead or stopped"),
    ("stop", 0, "rank 0 is dead or stopped"),
    ("sleep", 1, "rank 1 hangs")], ids=str)
def test_the_others_name_the_rank(fault, victim, said):
    started = ranks.start(3, STEPS, fault)
    others = [p for r, p in enumerate(started) if r != victim]
    try:
        assert all(p.stdout.readline() == "ready\n" for p in started)
        if fault != "sleep":
            time.sleep(0.5)
            started[victim].send_signal(
                signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
        start = time.monotonic()
        for code, out, err in ranks.finish(others, 90):
            # Threads of gloo that wait for the rank may end the program when it exits.
            assert code in (1, -signal.SIGABRT), err
            assert said in err
            assert "E0830" in err
            assert float(out) - start < 30
    finally:
        started[victim].kill()
        ranks.finish(started)


def run(tmp_path, code, *arguments):
    script = tmp_path / "script.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, "-m", "weft.distributed.run", "-n", "3", str(script), *arguments],
        check=False, text=True, capture_output=True, timeout=100, cwd=ranks.ROOT,
        env=ranks.environment())


def test_the_launcher_prefixes_lines_and_passes_arguments(tmp_path):
    done = run(tmp_path, "import sys, os; print(sys.argv[1:], os.environ['WORLD_SIZE'])", "-n", "x")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", *(f"[{r}] ['-n', 'x'] 3" for r in range(3))]


def test_the_launcher_ends_all_and_names_the_first_that_failed(tmp_path):
    start = time.monotonic()
    done = run(tmp_path, "import os, time\n"
               "if os.environ['RANK'] == '1': raise ValueError('a bug')\n"
               "time.sleep(60)")
    assert done.returncode == 1
    assert done.stderr.endswith("rank 1 exited with 1: ValueError: a bug\n")
    assert time.monotonic() - start < 30


def test_the_launcher_names_a_rank_that_was_killed(tmp_path):
    done = run(tmp_path, "import os, signal, time\n"
               "if os.environ['RANK'] == '2': os.kill(os.getpid(), signal.SIGKILL)\n"
               "time.sleep(60)")
    assert done.returncode == 128 + 9
    assert done.stderr.endswith("rank 2 was killed by SIGKILL\n")


def test_the_launcher_joins_ranks(tmp_path):
    done = run(tmp_path, "import numpy as np, weft.distributed as d\n"
               "print(d.init().all_reduce(np.array([d.rank() + 1.0])))")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == ["", *(f"[{r}] [6.]" for r in range(3))]
