"""Times of programs on simulated devices: ``python -m benchmarks.devices [--rounds N]``.

Each row is a model of independent branches of products, on one device with one thread and on a
device for each branch, with fast links: what running partitions at the same time gains. The last
line is the time of a hand-over between two lanes, of a chain that changes its device at each step.
One device and several run in turn; times are the best of all rounds. Branches beyond the CPUs of
the machine cannot gain.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

import weft
from weft.runtime.devices.cpu.host import usable_cpus
from weft.runtime.profile import render_table

_LAYERS, _HOPS = 6, 50
_FAST = {"latency": 0.0, "bandwidth": 1e12}


def branches(count: int, size: int) -> weft.IRModule:
    """A model of ``count`` chains of products of ``size`` x ``size`` matrices, which it adds."""
    type_ = f"Tensor[({size}, {size}), float32]"
    lines = [f"let %v{b}_0 = nn.relu(%x{b});" for b in range(count)]
    lines += [f"let %v{b}_{n + 1} = nn.relu(nn.dense(%v{b}_{n}, %w));"
              for n in range(_LAYERS) for b in range(count)]
    total = f"%v0_{_LAYERS}"
    for b in range(1, count):
        total = f"add({total}, %v{b}_{_LAYERS})"
    inputs = ", ".join(f"%{name}: {type_}" for name in (*(f"x{b}" for b in range(count)), "w"))
    return weft.parse(f"def @main({inputs}) {{\n" + "\n".join((*lines, total)) + "\n}")


def chain() -> weft.IRModule:
    """Small steps on two devices in turn."""
    lines, before = [], "%x"
    for n in range(_HOPS):
        lines.append(f'let %a{n} = annotation.on_device(tanh({before}), device="sim:{n % 2}");')
        before = f"%a{n}"
    return weft.parse("def @main(%x: Tensor[(4,), float32]) {\n"
                      + "\n".join((*lines, before)) + "\n}")


def best_times(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """The best time of each, in seconds."""
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            start = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - start)
    return best


def row(count: int, size: int, rounds: int) -> tuple[str, ...]:
    """One device against one for each branch; the results must be equal."""
    model = branches(count, size)
    devices = [weft.SimDevice(n, **_FAST) for n in range(count)]
    one = weft.compile(model, devices=devices[:1])
    several = weft.compile(model, devices=devices, placement="cost")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((size, size)).astype(np.float32) / size**0.5
              for _ in range(count + 1)]
    if one(*arrays).tobytes() != several(*arrays).tobytes():
        raise SystemExit("the results differ")
    single, spread = best_times([lambda: one(*arrays), lambda: several(*arrays)], rounds)
    return (str(count), str(size), f"{single * 1e3:.2f}", f"{spread * 1e3:.2f}",
            f"{single / spread:.2f}")


def handover_seconds(rounds: int) -> float:
    """Seconds from the end of a lane's work to the start of another's that waits for it."""
    mod = weft.compile(chain(), devices=[weft.SimDevice(n, latency=0.0) for n in range(2)])
    x = np.zeros(4, np.float32)
    (seconds,) = best_times([lambda: mod(x)], rounds)
    return seconds / len(mod.manifest.steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    rounds = parser.parse_args().rounds
    rows = [row(count, size, rounds) for count in (2, 4) for size in (128, 256, 512)]
    print(render_table(("branches", "size", "one device [ms]", "one each [ms]", "ratio"), rows))
    print(f"a hand-over takes {handover_seconds(rounds) * 1e6:.1f} us; {usable_cpus()} CPUs")


if __name__ == "__main__":
    main()
