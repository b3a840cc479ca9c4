"""Runs a command of ``tools/dev.py`` with the newest supported Python other than this one.

    python tools/other_python.py test-hundred

It looks on the path and among the versions of pyenv. Where there is no other one, it says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import dev


def candidates(version: tuple[int, int]) -> Iterator[Path]:
    """Where an interpreter of a version may be."""
    name = f"python{dev.spelled(version)}"
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which(name, path=folder)
        if found is not None:
            yield Path(found)
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from sorted((root / "versions").glob(f"{dev.spelled(version)}.*/bin/{name}"))


def is_usable(python: Path, version: tuple[int, int]) -> bool:
    """Whether it starts (a shim of pyenv may not), is of the version, and makes environments."""
    code = "import sys, ensurepip; print(*sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60,
                              check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.stdout.split() == [str(number) for number in version]


def newest_other() -> Path | None:
    """The newest supported interpreter of another version than this one."""
    for version in sorted(dev.SUPPORTED, reverse=True):
        if version != sys.version_info[:2]:
            for python in candidates(version):
                if is_usable(python, version):
                    return python
    return None


def main(arguments: Sequence[str]) -> int:
    python = newest_other()
    if python is None:
        print(f"no other Python of {', '.join(map(dev.spelled, dev.SUPPORTED))} is on this machine "
              f"beside {dev.spelled(sys.version_info)}: not run")
        return 0
    print(f"with {python}", flush=True)
    environment = {name: value for name, value in os.environ.items()
                   if name not in {"WEFT_PYTHON", "WEFT_VENV", "PYTHONPYCACHEPREFIX", "PYTHONPATH"}}
    command = [str(python), dev.__file__, *arguments]
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
