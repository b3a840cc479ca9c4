"""Trying a new artifact in a process of its own, before its file gets its name.

The module runs once here, and each native program of the file that fits this machine once in a
child process that has no compiler loaded. A file that cannot be loaded, ends the process or gives
other results is refused.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.runtime.executable import Executable
from weft.runtime.manifest import Manifest, TargetSpec
from weft.runtime.run_control import RunControl
from weft.runtime.sizes import evaluate
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, WeftError

# A module that runs longer, or has more input, is loaded in the child, and not run.
_SECONDS = 20.0
_MAX_BYTES = 256 << 20
# The child has a while for the calls of several programs, and for a machine that is busy.
_CHILD_SECONDS = 10 * _SECONDS
# Programs for other CPUs round differently.
_TOLERANCE = 2e-2


@dataclass(frozen=True, slots=True)
class Trial:
    """Inputs of an entry point and the results of its module; ``None``: it is loaded alone.

    ``target`` is that of the module: the same code gives the same bits.
    """

    target: TargetSpec
    inputs: Sequence[np.ndarray] = ()
    results: Sequence[Any] | None = None


def trial_of(module: Executable, initial: Mapping[str, np.ndarray]) -> Trial:
    """A run of ``module`` on random inputs, from the first values of its state.

    The state is as before afterwards.
    """
    manifest = module.manifest
    inputs = None if module.launcher is None else _inputs(manifest)
    if inputs is None or not module.runs_here or manifest.target.kind != "cpu":
        return Trial(manifest.target)
    kept = {name: np.array(array) for name, array in module.state.items()}
    for name, array in module.state.items():
        array[...] = initial.get(name, np.zeros((), array.dtype))
    try:
        feeds = {spec.name: x for spec, x in zip(module.inputs, inputs, strict=True)}
        results = module.run(None, feeds, RunControl(_SECONDS))
    except WeftError:  # these inputs do not suit the model
        return Trial(manifest.target)
    finally:
        for name, array in kept.items():
            module.state[name] = array
    return Trial(manifest.target, inputs, [_plain(result) for result in results])


def check_in_child(path: Path, trials: Mapping[str, Trial]) -> None:
    """Load ``path`` in a child process and compare the results of its programs with the trials.

    Raises ``ArtifactError`` if they differ, or if the process fails.
    """
    code = (f"import sys; sys.path[:] = {sys.path!r}; "
            "from weft.runtime.artifact_trial import main; main()")
    try:
        done = subprocess.run([sys.executable, "-P", "-c", code], check=False,
                              capture_output=True, timeout=_CHILD_SECONDS,
                              input=pickle.dumps((path, dict(trials))))
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ArtifactError("the artifact could not be tried", got=error,
                            help="check=False exports without a trial") from None
    if done.returncode == 0:
        return
    said = done.stderr.decode(errors="replace").strip().splitlines()
    raise ArtifactError(
        "the artifact does not run as the module does", got=said[-1] if said else "no message",
        expected="the results of the module, in a process that loads the file",
        notes=[f"exit status {done.returncode}"], help="this is a bug in weft; please report it")


def main() -> None:
    """Run the trials of the parent process; the exit status is 0 if all are as expected."""
    from weft.runtime.artifact_loader import Loader
    from weft.support.fallback import FallbackLog, recording

    path, trials = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent process
    with recording(FallbackLog(is_trial=True)):
        loader = Loader.of(path)
        for name, trial in trials.items():
            for module in loader.fitting(name):
                _compare(name, module, trial)


def _compare(name: str, module: Executable, trial: Trial) -> None:
    if trial.results is None:
        return
    feeds = {spec.name: x for spec, x in zip(module.inputs, trial.inputs, strict=True)}
    found = [_plain(result) for result in module.run(None, feeds)]
    manifest = module.manifest
    # Code for all sizes may add up in another order than code for the sizes of the trial.
    is_same_code = manifest.target == trial.target and not (manifest.vm and manifest.vm.symbolic)
    for spec, one, other in zip(module.outputs, found, trial.results, strict=False):
        if not (_equal(one, other) if is_same_code else _close(one, other)):
            raise SystemExit(f"entry point {name!r} gives another {spec.name} "
                             f"with the code for {module.manifest.target.cpu}")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape \
            and one.tobytes() == other.tobytes()
    return bool(one == other)


def _close(one: Any, other: Any) -> bool:
    if not isinstance(one, np.ndarray) or one.dtype.kind in "biu":
        return True  # a rounding error may decide an index
    if one.shape != other.shape:
        return False
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (one, other)]
    return bool(np.allclose(*wide, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))


def _plain(result: Any) -> Any:
    """A result that can be sent and compared: an array, or the text of a value."""
    return result if isinstance(result, np.ndarray) else repr(result)


def _inputs(manifest: Manifest) -> list[np.ndarray] | None:
    """Random inputs, small numbers all; ``None`` if they would be large or have no sizes."""
    sizes = {s.name: -(-max(s.low, 2) // s.multiple) * s.multiple for s in manifest.symbols}
    for symbol in manifest.symbols:
        if symbol.high is not None:
            sizes[symbol.name] = min(sizes[symbol.name], symbol.high)
    random, made, total = np.random.default_rng(0), [], 0
    try:
        for spec in manifest.inputs:
            shape = tuple(2 if n == "?" else evaluate(n, sizes) for n in spec.shape)
            total += int(np.prod(shape, dtype=np.int64)) * spec.numpy_dtype.itemsize
            if total > _MAX_BYTES:
                return None
            made.append(_random(random, shape, spec.numpy_dtype))
    except WeftError:
        return None
    return made


def _random(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind in "biu":
        return random.integers(0, 2, shape).astype(dtype)
    return random.standard_normal(shape).astype(dtype)
