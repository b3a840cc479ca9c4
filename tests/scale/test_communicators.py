"""Ranks that are processes exchange what NumPy says, with gloo and with MPI."""

import subprocess
import sys

import pytest

from tests.scale import ranks

pytestmark = pytest.mark.torch

CHECK = """
import weft.distributed
from tests.unit.distributed.exchanges import check
for deterministic in (False, True):
    world = weft.distributed.init(deterministic=deterministic)
    check(world)
    # One write for each line: lines of ranks meet in one output.
    print(f"{world.backend} {world.rank} agrees\\n", end="", flush=True)
"""


@pytest.mark.parametrize("count", [2, 4])
def test_gloo(count):
    for rank, (code, out, err) in enumerate(ranks.finish(ranks.start(count, CHECK))):
        assert code == 0, err
        assert out.split("\n")[:2] == [f"gloo {rank} agrees"] * 2


def test_mpi():
    done = ranks.mpiexec(3, CHECK)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == sorted(
        ["", *[f"mpi {r} agrees" for r in range(3) for _ in range(2)]])


def test_a_rank_with_another_program_is_refused():
    program = ("import weft.distributed as d\n"
               "d.init(program='b' if __import__('os').environ['RANK'] == '1' else 'a')")
    for code, _, err in ranks.finish(ranks.start(2, program)):
        assert code == 1
        assert "rank 1 runs another program or version" in err
        assert "rank 1: program is b, on rank 0 a" in err


def test_torchrun(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CHECK)
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         str(script)], check=False, text=True, capture_output=True, timeout=120, cwd=ranks.ROOT,
        env=ranks.environment())
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(
        word for r in range(2) for _ in range(2) for word in f"gloo {r} agrees".split())
