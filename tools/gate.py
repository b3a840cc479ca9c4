"""The gate: everything that a change must pass, part by part, and the time of each.

    python3 tools/gate.py [PART ...] [--list]

Every part runs, also after one has failed. Where there are two CPUs, parts of one process run side
by side. Long tables are drawn by one seed, always the same: ``WEFT_TEST_SEED=N`` draws others.
The exit code is 1 if a part failed. The last line printed is that of the tests.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEV = ROOT / "tools" / "dev.py"


# As in tests/sampling.py: what fails then is that of a change.
USUAL_SEED = "0"


@dataclass(frozen=True)
class Part:
    """A command of ``tools/dev.py``; ``alone`` where it uses all CPUs by itself."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    alone: bool = True


@dataclass(frozen=True)
class Outcome:
    """What a part gave; seconds by the clock, and of all CPUs."""

    code: int
    seconds: float
    cpu_seconds: float
    closing: str = ""


# The environments are made before parts run side by side. The largest comes first: the others find
# what they need there.
SET_UP = (Part("venv-torch"), Part("venv-targets"), Part("venv"))
# Beside others, a process does not start more to build kernels, and its threads that wait sleep.
BESIDE = {"WEFT_BUILD_JOBS": "1", "OMP_WAIT_POLICY": "passive"}
PARTS = (
    Part("lint"), Part("types"),
    # Side by side; the longest come first, so that no CPU waits for one at the end.
    Part("test-scale", {"WEFT_TEST_SHARE": "0.1", **BESIDE}, alone=False),
    Part("test-layers", {"WEFT_TEST_SHARE": "0.15", **BESIDE}, alone=False),
    Part("test-other-python", alone=False),
    Part("fuzz", BESIDE, alone=False),
    Part("test-cuda", {"WEFT_TEST_SHARE": "0.03", **BESIDE}, alone=False),
    Part("test-wheel", alone=False),
    Part("demo", alone=False),
    Part("examples", alone=False),
    Part("test-targets", {"WEFT_TEST_SHARE": "0.006", **BESIDE}, alone=False),
    Part("layers", alone=False), Part("api", alone=False), Part("size", alone=False),
    Part("test-onnx", BESIDE),  # its processes use all CPUs
    Part("test-torch"),
    Part("test"),  # its closing line is the last one
)


def run(part: Part, show: Callable[[str], None]) -> Outcome:
    """Run a part; ``show`` gets its lines, all but the closing one."""
    environment = {**os.environ, **part.settings, "PYTHONUNBUFFERED": "1"}
    start, closing = time.monotonic(), ""
    with subprocess.Popen([sys.executable, str(DEV), part.name], cwd=ROOT, env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if closing:
                show(closing)
            closing = line
        _, status, usage = os.wait4(process.pid, 0)  # with the time of all that it started
        process.returncode = os.waitstatus_to_exitcode(status)
    return Outcome(process.returncode, time.monotonic() - start,
                   usage.ru_utime + usage.ru_stime, closing.rstrip("\n"))


def run_shown(part: Part) -> Outcome:
    """Run a part that prints as it goes."""
    print(f"== {part.name}", flush=True)
    return run(part, lambda line: print(line, end="", flush=True))


def run_aside(part: Part, printing: threading.Lock) -> Outcome:
    """Run a part beside another; its lines come when it has ended."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as kept:
        outcome = run(part, kept.write)
        kept.seek(0)
        with printing:
            print(f"== {part.name}\n{kept.read()}{outcome.closing}", flush=True)
    return outcome


def run_all(parts: Sequence[Part]) -> dict[str, Outcome]:
    """The outcomes in order; the closing line of the last part is not printed."""
    outcomes: dict[str, Outcome] = {}
    aside, printing = [p for p in parts if not p.alone], threading.Lock()
    for part in parts:
        if part.name in outcomes:
            continue
        if part.alone:
            outcomes[part.name] = run_shown(part)
            if part is not parts[-1] and outcomes[part.name].closing:
                print(outcomes[part.name].closing, flush=True)
            continue
        with ThreadPoolExecutor(min(2, len(os.sched_getaffinity(0)))) as pool:
            found = pool.map(lambda p: run_aside(p, printing), aside)
            outcomes.update(zip((p.name for p in aside), found, strict=True))
    return outcomes


def table(outcomes: Mapping[str, Outcome], seconds: float) -> str:
    """One line for each part, and one for the whole."""
    lines = [f"{'part':20}{'seconds':>9}{'of CPUs':>9}"]
    lines += [f"{name:20}{o.seconds:9.1f}{o.cpu_seconds:9.1f}"
              + (f"  FAILED with {o.code}" if o.code else "") for name, o in outcomes.items()]
    total = sum(o.cpu_seconds for o in outcomes.values())
    return "\n".join([*lines, f"{'all':20}{seconds:9.1f}{total:9.1f}"])


def chosen(names: Sequence[str]) -> list[Part]:
    """The parts that are named, or all; setting up comes first."""
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        raise SystemExit(f"no such part: {', '.join(sorted(unknown))}; there are "
                         + ", ".join(part.name for part in PARTS))
    return [*SET_UP, *(part for part in PARTS if not names or part.name in names)]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--list", action="store_true", help="print the parts")
    options = parser.parse_args(arguments)
    parts = chosen(options.parts)
    if options.list:
        print(*(part.name for part in parts), sep="\n")
        return 0
    seed = os.environ.setdefault("WEFT_TEST_SEED", USUAL_SEED)
    print(f"seed {seed}: another WEFT_TEST_SEED draws other tests", flush=True)
    start = time.monotonic()
    outcomes = run_all(parts)
    failed = [name for name, outcome in outcomes.items() if outcome.code]
    print(f"\n{table(outcomes, time.monotonic() - start)}\nseed {seed}"
          + (f"; failed: {', '.join(failed)}" if failed else ""))
    print(outcomes[parts[-1].name].closing, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
