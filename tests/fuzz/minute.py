"""A minute of programs that no run has seen: ``python -m tests.fuzz.minute [--seed N]``.

Half of the time goes to ONNX graphs beside onnxruntime and the reference evaluator, the rest to
programs of the language through sequences of passes. The first line names the seed of the run, a
failure the graph or program; ``--seed`` repeats a run, ``--seconds`` sets its length.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections import Counter

from tests.fuzz.random_onnx import QUIET, check_graph, described, draw_graph, minimal
from tests.sampling import SEED

MOST_NODES = 10
# Of the graphs at least this share is computed by weft and its peers, or nothing is shown.
LEAST_COMPARED = 0.3
PROPERTIES = "tests/fuzz/test_passes_keep_meaning.py"
PROGRAMS_A_SECOND = 1


def fuzz_graphs(first: int, seconds: float) -> bool:
    """Compare the graphs of the seeds from ``first`` until the time is over."""
    counts: Counter[str] = Counter()
    end, number = time.monotonic() + seconds, first
    while time.monotonic() < end:
        graph = draw_graph(number, MOST_NODES)
        finding = check_graph(graph)
        kind = "agree" if finding is None else finding.kind
        counts[kind] += 1
        if finding is not None and kind not in (*QUIET, "refused"):
            outputs, found = minimal(graph, finding)
            print(f"graph {number}: {found.kind}: {found.text}\n{described(graph, outputs)}\n"
                  f"python -m tests.fuzz.random_onnx --seeds {number}:{number + 1} "
                  f"--nodes {MOST_NODES} repeats it", flush=True)
        number += 1
    print(f"{number - first} graphs from {first}: {dict(counts)}", flush=True)
    enough = counts["agree"] >= LEAST_COMPARED * sum(counts.values())
    return enough and not counts["wrong"] and not counts["failed"]


def fuzz_passes(seed: int, seconds: float) -> bool:
    """Run the properties of passes over other programs than those of the suite."""
    examples = max(1, round(seconds * PROGRAMS_A_SECOND))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist",
               f"--hypothesis-seed={seed}", PROPERTIES]
    environment = {**os.environ, "WEFT_FUZZ_EXAMPLES": str(examples)}
    return subprocess.run(command, check=False, env=environment).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    seed = options.seed
    if seed is None:
        seed = int(os.environ.get(SEED) or random.SystemRandom().randrange(10**6))
    print(f"python -m tests.fuzz.minute --seed {seed} repeats this run", flush=True)
    first = random.Random(seed).randrange(10**9)
    agree = fuzz_graphs(first, options.seconds / 2)
    hold = fuzz_passes(seed, options.seconds / 2)
    return 0 if agree and hold else 1


if __name__ == "__main__":
    sys.exit(main())
