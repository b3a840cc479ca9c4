"""Code generation never ends the process: fused pairs of operations compile in one of their own.

``WEFT_FUZZ_EXAMPLES=5000`` compiles that many pairs with a new seed; ``all`` compiles every pair of
the table for every CPU, which takes days (``fused_pairs`` takes the names of CPUs, too).
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.unit.codegen.fused_pairs import CPUS, DTYPES, KNOWN, OPERATIONS, every_case, function_of

EXAMPLES = os.environ.get("WEFT_FUZZ_EXAMPLES")


def test_fused_pairs_compile() -> None:
    seed = int.from_bytes(os.urandom(4)) if EXAMPLES else 0
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.codegen.fused_pairs", EXAMPLES or "56", str(seed)],
        capture_output=True, text=True, check=False)  # fmt: skip
    last = done.stderr.splitlines()[-2:]
    assert done.returncode == 0, f"seed {seed}: the process ended at {last}"
    compiled, undefined = map(int, done.stdout.split())
    assert compiled > 4 * undefined


def test_the_table_has_every_dtype_and_pair() -> None:
    first = {(case.dtype, case.first) for case in every_case(CPUS[:1])}
    assert len(first) == len(DTYPES) * len(OPERATIONS)
    assert all(function_of(case) is not None for case in KNOWN)
