"""Operator cases and light models on foreign machines: ``make test-targets``.

    python -m tests.targets.all_cases [MACHINE ...] [--cases PATTERN] [--models NAMES] [--install]

``WEFT_TEST_SHARE`` takes a seeded share of the cases, and no light models below 1. Many models make
one program, because emulators start slowly; one that ends early costs the model that it ran. A
whole run needs the emulators of all machines (Debian's qemu-user and nodejs, which ``--install``
installs for root). A share leaves out machines whose emulator is absent, and says so.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from itertools import chain

from tests.models.randomize import LIGHT_MODELS
from tests.sampling import SEED, is_whole, sampled, seed
from tests.targets.driver import results_of
from tests.targets.machines import MACHINES, Machine, RunError, is_here, run_models
from tests.targets.models import DoesNotFit, Model, case_model, light_model
from tests.unit.op.harness import CaseId, all_cases
from weft import op as _catalogue  # noqa: F401 - registers the operators
from weft.support.errors import CodegenError, LinkerError

_BATCH = 100
_PACKAGES = ("qemu-user", "nodejs")
NEEDS_MATH = "needs a C math library"
REFUSED = "computes in float64, which the CPU lacks"
# QEMU 7.2 fails this assertion on some conversions of vectors of floats to integers.
QEMU_FAULT, _QEMU_SAYS = "stopped by a fault of the emulator", "decode_save_opc: Assertion"
_NOT_RUN = ("does not fit", NEEDS_MATH, REFUSED, QEMU_FAULT)


def main() -> None:
    """Run the machines that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("machines", nargs="*")
    parser.add_argument("--cases", default="*")
    parser.add_argument("--models", default=None)
    parser.add_argument("--install", action="store_true")
    options = parser.parse_args()
    chosen = [MACHINES[name] for name in options.machines] or list(MACHINES.values())
    if options.install and not all(map(is_here, chosen)):
        install()
    absent = [m for m in chosen if not is_here(m)]
    if absent and (is_whole() or options.machines):
        sys.exit(f"not installed: {', '.join(sorted({m.needs for m in absent}))}; as root: "
                 f"apt-get install {' '.join(_PACKAGES)}")
    for machine in absent:
        print(f"{machine.name}: not part of this run, which lacks {machine.needs}", flush=True)
    chosen = [m for m in chosen if m not in absent]
    usual = LIGHT_MODELS if is_whole() and options.cases == "*" else ()
    names = usual if options.models is None else options.models.split(",") if options.models else ()
    failed = sum(run_machine(machine, options.cases, names) for machine in chosen)
    print(f"{failed} failed; {SEED}={seed()}")
    sys.exit(bool(failed))


def install() -> None:
    """Install the emulators, for root on a system with apt; elsewhere nothing happens."""
    if os.geteuid() or shutil.which("apt-get") is None:
        return
    for words in (["update"], ["install", "-y", "--no-install-recommends", *_PACKAGES]):
        subprocess.run(["apt-get", "-qq", *words], check=False, stdout=subprocess.DEVNULL)


def run_machine(machine: Machine, pattern: str, names: Sequence[str]) -> int:
    """Print what failed and one line of counts; the number of failures."""
    ids = [one for one in all_cases() if fnmatch(f"{one[0]}-{one[1]}", pattern)]
    chosen = sampled(f"targets {machine.name}", ids, share=1) if ids else []
    kinds: Counter[str] = Counter()
    for label, complaint in chain(case_results(machine, chosen), light_results(machine, names)):
        kind = complaint.partition(":")[0]
        kinds[kind] += 1
        if kind not in ("", *_NOT_RUN):
            print(f"{machine.name} {label}: {complaint}", flush=True)
    agree = kinds.pop("", 0)
    rest = "".join(f", {kinds.pop(kind)} {kind}" for kind in _NOT_RUN if kind in kinds)
    failed = sum(kinds.values())
    print(f"{machine.name}: {agree} of {len(chosen) + len(names)} agree{rest}, {failed} failed",
          flush=True)
    return failed


def case_results(machine: Machine, ids: Sequence[CaseId]) -> Iterator[tuple[str, str]]:
    """Each case and what is wrong with it, or nothing."""
    models: list[Model] = []
    for number, id_ in enumerate(ids):
        try:
            models.append(case_model(id_, machine.cpu))
        except DoesNotFit:
            yield f"{id_[0]}-{id_[1]}", "does not fit"
        except CodegenError as error:
            is_refused = "lacks instructions" in error.what
            yield f"{id_[0]}-{id_[1]}", REFUSED if is_refused else f"CodegenError: {_line(error)}"
        except Exception as error:  # noqa: BLE001 - the report of a sweep
            yield f"{id_[0]}-{id_[1]}", f"{type(error).__name__}: {_line(error)}"
        if len(models) == _BATCH or number + 1 == len(ids):
            yield from _outcomes([m for m in models if not m.needs_math], machine)
            others = [m for m in models if m.needs_math]
            if is_whole() and machine.run is not None:  # building the library takes a minute
                yield from _outcomes(others, machine)
            else:
                yield from ((m.label, NEEDS_MATH) for m in others)
            models = []


def light_results(machine: Machine, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The light models, one after the other."""
    for name in names:
        try:
            yield from _outcomes([light_model(name, machine.cpu)], machine)
        except Exception as error:  # noqa: BLE001
            yield name, f"{type(error).__name__}: {_line(error)}"


def _outcomes(models: Sequence[Model], machine: Machine) -> Iterator[tuple[str, str]]:
    left = list(models)
    while left:
        try:
            output, ended = run_models(left, machine), ""
        except RunError as error:
            output, ended = error.output, _line(error)
        except LinkerError as error:
            if len(left) > 1:  # find the models that cannot be linked
                half = len(left) // 2
                yield from _outcomes(left[:half], machine)
                yield from _outcomes(left[half:], machine)
            else:
                yield left[0].label, f"LinkerError: {_line(error)}"
            return
        found = results_of(left, output)
        for model, results in zip(left, found, strict=False):
            yield model.label, _complaint(model, results)
        left = left[len(found):]
        if left:
            yield left.pop(0).label, QEMU_FAULT if _QEMU_SAYS in ended else \
                f"the program ended: {ended}"


def _complaint(model: Model, results: object) -> str:
    if not isinstance(results, list):
        return f"code {results}: returned"
    try:
        for got, want in zip(results, model.expected, strict=True):
            model.check(got, want)
    except AssertionError as error:
        return f"wrong: {_line(error)}"
    return ""


def _line(error: object) -> str:
    return " | ".join(str(error).split("\n"))[:400]


if __name__ == "__main__":
    main()
