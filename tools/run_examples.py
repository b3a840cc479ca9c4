"""Run every example briefly, in a folder of its own; the demo has a command of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BRIEFLY = ("--epochs", "1", "--steps", "5")
EXAMPLES = (
    ("examples.c_codegen",),
    ("examples.toy_target",),
    ("examples.train.digits", *BRIEFLY),
    ("examples.train.language", *BRIEFLY),
    ("examples.train.fine_tune", *BRIEFLY),
    ("weft.distributed.run", "-n", "2", "-m", "examples.train_on_many", *BRIEFLY),
)


def main() -> int:
    failed = 0
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryDirectory() as folder:
        for module, *options in EXAMPLES:
            print(f"-- {module} {' '.join(options)}", flush=True)
            done = subprocess.run([sys.executable, "-m", module, *options], cwd=folder, check=False,
                                  env=environment, stdin=subprocess.DEVNULL)
            failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
