"""Does a test notice when the compiler is changed? Mutation testing, outside the gate.

    python -m tools.mutation --count 500 --seed 1             a sample over all packages
    python -m tools.mutation --packages ir,tir --count 50     of some packages
    python -m tools.mutation --report mutants.jsonl           the table of an earlier run

Each mutant (``tools/mutants.py``) is written into a copy of the tree, and the tests nearest to its
module run there until one fails: those that import the module by name, then the folder of tests
that mirrors it. A mutant that no test notices has *survived*: it gets a test, or it changes
nothing that a caller can see. Results are appended to a file; the same command goes on where an
earlier run ended.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Queue

from tools.mutants import Mutant, mutants_of, parses

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ir", "transform", "strategy", "tir", "codegen", "runtime")
# Folders of tests that mirror a package under another name.
MIRRORS = {"op": "ops", "topi": "ops"}
# Of the tests that name a module the nearest ones.
NEAREST = 8
COPIED = ("weft", "tests", "tools", "docs", "examples", "benchmarks", "pyproject.toml", "README.md",
          "CONTRIBUTING.md", "Makefile", "LICENSE")


@dataclass(frozen=True)
class Result:
    """``verdict`` is killed, timeout (killed, too) or survived; ``by`` is the test that failed."""

    package: str
    mutant: str
    verdict: str
    by: str
    seconds: float


def sample(packages: Sequence[str], count: int, seed: int) -> list[Mutant]:
    """``count`` mutants, each with the same chance; the same for the same sources and seed."""
    found = [mutant for package in packages
             for path in sorted((ROOT / "weft" / package).rglob("*.py"))
             for mutant in mutants_of(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
    random.Random(seed).shuffle(found)
    chosen: list[Mutant] = []
    for mutant in found:
        if len(chosen) == count:
            break
        if parses(mutant, (ROOT / mutant.path).read_text("utf-8")):
            chosen.append(mutant)
    return chosen


def tests_for(path: str) -> list[list[str]]:
    """Test files for a module, the nearest first, in the groups in which they run."""
    parts = Path(path).with_suffix("").parts
    dotted = ".".join(parts).removesuffix(".__init__")
    pattern = re.compile(rf"\b{re.escape(dotted)}\b|from {re.escape(dotted.rpartition('.')[0])} "
                         rf"import [^\n]*\b{parts[-1]}\b")
    suites = sorted((ROOT / "tests").rglob("test_*.py"))
    counts = {str(s.relative_to(ROOT)): len(pattern.findall(s.read_text("utf-8"))) for s in suites}
    named = sorted((s for s, n in counts.items() if n), key=lambda s: (-counts[s], s))[:NEAREST]
    named += [s for s in counts if Path(s).stem == f"test_{parts[-1]}" and s not in named]
    mirror = ROOT / "tests" / "unit" / MIRRORS.get(parts[1], parts[1])
    folder = [str(s.relative_to(ROOT)) for s in sorted(mirror.rglob("test_*.py"))]
    return [group for group in (named, [s for s in folder if s not in named]) if group]


@contextmanager
def copied_tree() -> Iterator[Path]:
    """A copy of what tests need, where sources can be changed."""
    with tempfile.TemporaryDirectory(prefix="weft-mutation-") as folder:
        for name in COPIED:
            source, goal = ROOT / name, Path(folder) / name
            if source.is_dir():
                shutil.copytree(source, goal, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, goal)
        yield Path(folder)


def judged(mutant: Mutant, tree: Path, timeout: float) -> Result:
    """Run the tests of a mutant in ``tree``, which is as before afterwards."""
    start, file = time.monotonic(), tree / mutant.path
    source = (ROOT / mutant.path).read_text("utf-8")
    file.write_text(mutant.applied_to(source), "utf-8")
    try:
        verdict, by = _verdict(mutant, tree, timeout)
    finally:
        file.write_text(source, "utf-8")
    return Result(Path(mutant.path).parts[1], str(mutant), verdict, by, time.monotonic() - start)


def _verdict(mutant: Mutant, tree: Path, timeout: float) -> tuple[str, str]:
    with tempfile.TemporaryDirectory(prefix="weft-cache-") as cache:
        # No bytecode: a file that changes twice in a second would keep that of the mutant.
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1",
                       "WEFT_CACHE_DIR": cache, "WEFT_VERIFY": "1"}
        deadline = time.monotonic() + timeout
        for group in tests_for(mutant.path):
            command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider",
                       "-m", "not slow and not torch", *group]
            try:
                done = subprocess.run(command, cwd=tree, env=environment, capture_output=True,
                                      text=True, check=False,
                                      timeout=max(deadline - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                # Tests that are still green when the time is up have not noticed anything.
                return ("timeout", "") if _hangs(mutant) else ("survived", "time is up")
            if done.returncode not in (0, 5):  # 5: no test was selected
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return "killed", failed[1] if failed else "while tests were collected"
    return "survived", ""


def _hangs(mutant: Mutant) -> bool:
    """Whether the change may make a loop endless; other mutants just had too many tests."""
    return "while" in (ROOT / mutant.path).read_text("utf-8").splitlines()[mutant.line - 1]


def run(mutants: Sequence[Mutant], log: Path, jobs: int, timeout: float) -> None:
    """Judge the mutants that ``log`` has no result for, and append their results."""
    known = {result.mutant for result in read(log)}
    trees: Queue[Path] = Queue()

    def one(mutant: Mutant) -> None:
        tree = trees.get()
        try:
            result = judged(mutant, tree, timeout)
        finally:
            trees.put(tree)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(vars(result)) + "\n")
        print(f"{result.verdict:9}{result.seconds:6.1f} s  {mutant}", flush=True)

    with copied_trees(jobs) as made, ThreadPoolExecutor(jobs) as pool:
        for tree in made:
            trees.put(tree)
        list(pool.map(one, [m for m in mutants if str(m) not in known]))


@contextmanager
def copied_trees(count: int) -> Iterator[list[Path]]:
    if count == 0:
        yield []
        return
    with copied_tree() as first, copied_trees(count - 1) as others:
        yield [first, *others]


def read(log: Path) -> list[Result]:
    if not log.is_file():
        return []
    return [Result(**json.loads(line)) for line in log.read_text("utf-8").splitlines()]


def report(results: Sequence[Result]) -> str:
    """A line for each package, and the mutants that survived."""
    total, killed = Counter[str](), Counter[str]()
    for result in results:
        for name in (result.package, "all"):
            total[name] += 1
            killed[name] += result.verdict != "survived"
    lines = [f"{name:12}{killed[name]:5} of {total[name]:5} killed, "
             f"{100 * killed[name] / total[name]:.0f} %" for name in sorted(total)]
    left = [f"survived: {result.mutant}" for result in results if result.verdict == "survived"]
    return "\n".join([*lines, *sorted(left)])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--packages", default=",".join(PACKAGES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=240.0, help="seconds for each mutant")
    parser.add_argument("--log", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument("--report", type=Path, help="print the table of this file alone")
    given = parser.parse_args(arguments)
    if given.report is None:
        run(sample(given.packages.split(","), given.count, given.seed), given.log, given.jobs,
            given.timeout)
    print(report(read(given.report or given.log)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
