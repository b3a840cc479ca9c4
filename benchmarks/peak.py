"""The FMA peak of the machine on one or more threads, measured in the same run."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

SNIPPET = """
import statistics
from weft.codegen import CPU_BACKEND
from weft.runtime.devices.cpu.rates import measure_fma_peak
from weft.target import CpuTarget

target = CpuTarget.host()
library = CPU_BACKEND.load(CPU_BACKEND.support_objects(target), target)
print(statistics.median(measure_fma_peak(library) for _ in range(9)))
"""


def fma_peak(threads: int) -> float:
    """fp32 GFLOP/s of ``threads`` cores at once, each running dependent chains of vector FMAs."""
    environment = {**os.environ, "WEFT_THREADS": "1"}
    root = Path(__file__).resolve().parents[1]
    processes = [
        subprocess.Popen([sys.executable, "-c", SNIPPET], stdout=subprocess.PIPE, text=True,
                         env=environment, cwd=root)
        for _ in range(threads)
    ]
    values = [float(p.communicate()[0].split()[-1]) for p in processes]
    return statistics.mean(values) * threads
