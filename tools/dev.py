"""Set up and run everything a developer needs, with nothing but Python >= 3.11.

    python3 tools/dev.py demo           compile and run a real model
    python3 tools/dev.py test           all tests
    python3 tools/dev.py test-fast      the tests that take seconds
    python3 tools/dev.py test-onnx      the suite of the onnx package, with counts
    python3 tools/dev.py test-torch     PyTorch models and torch.compile (a larger download)
    python3 tools/dev.py lint|types|layers|size
    python3 tools/dev.py bench          latency beside other runtimes (a larger download)
    python3 tools/dev.py bench-kernels  single kernels beside other runtimes and the limits
    python3 tools/dev.py bench-compile  how long the code of each of these kernels takes
    python3 tools/dev.py venv           only set up

A virtual environment is made once in ``.venv``; it is set up again only when ``pyproject.toml``
changes. ``WEFT_VENV`` names another place, ``WEFT_PYTHON`` an interpreter that has everything
already.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = Path(os.environ.get("WEFT_VENV", ROOT / ".venv"))
MINIMUM = (3, 11)
PYTHON = "{python}"  # stands for the interpreter of the environment

COMMANDS: dict[str, tuple[str, list[list[str]]]] = {
    "venv": ("dev", []),
    "demo": ("dev", [["examples/demo.py"]]),
    "test": ("dev", [["-m", "pytest", "-q", "-n", "auto", "-m", "not torch"]]),
    "test-fast": ("dev", [["-m", "pytest", "-q", "-n", "auto", "-m", "not slow and not torch"]]),
    "test-torch": ("dev,torch-test", [["-m", "pytest", "-q", "-n", "auto", "-m", "torch"]]),
    "test-onnx": ("dev", [["-m", "tests.onnx.count"]]),
    "lint": ("dev", [["-m", "ruff", "check", "."]]),
    "types": ("dev", [["-m", "pyrefly", "check", "--python-interpreter-path", PYTHON]]),
    "layers": ("dev", [["-c", "from importlinter.cli import lint_imports_command as c; c()"]]),
    "size": ("dev", [["tools/check_size.py"]]),
    "bench": ("dev,bench", [["-m", "benchmarks"]]),
    "bench-kernels": ("dev,bench", [["-m", "benchmarks.kernels"]]),
    "bench-compile": ("dev", [["-m", "benchmarks.kernel_compile"]]),
}


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def check_python() -> None:
    if sys.version_info < MINIMUM:
        fail(f"weft needs Python {MINIMUM[0]}.{MINIMUM[1]} or later; this is "
             f"{sys.version.split()[0]}. Run this file with a newer python3.")


def interpreter() -> Path:
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return VENV / folder / name


def has_linker() -> bool:
    return any(shutil.which(name) for name in ("cc", "gcc", "clang", "ld", "ld.lld", "lld"))


def wanted_state(extras: str) -> str:
    """What the environment was made of, so that an unchanged one is not set up again."""
    metadata = (ROOT / "pyproject.toml").read_bytes()
    return f"{sys.version_info[:2]} {extras} {hashlib.sha256(metadata).hexdigest()}"


def make_environment() -> None:
    if interpreter().exists():
        return
    if importlib.util.find_spec("ensurepip") is None:
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        fail("python3 has no `venv` with pip here. On Debian and Ubuntu:\n"
             f"    sudo apt install python{version}-venv\n"
             "then run the same command again.")
    print(f"making a virtual environment in {VENV}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)


def set_up(extras: str) -> Path:
    """The interpreter of an environment that holds weft and ``extras``."""
    if "WEFT_PYTHON" in os.environ:
        return Path(os.environ["WEFT_PYTHON"])
    if not has_linker():
        extras += ",linker"
    stamp = VENV / f".weft-{extras.replace(',', '-')}"
    wanted = wanted_state(extras)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return interpreter()
    make_environment()
    print(f"installing weft with [{extras}]; this happens once", flush=True)
    subprocess.run([str(interpreter()), "-m", "pip", "install", "--quiet", "--progress-bar", "off",
                    "--disable-pip-version-check", "-e", f"{ROOT}[{extras}]"], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return interpreter()


def main(arguments: list[str]) -> int:
    check_python()
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__)
        return 0 if arguments and arguments[0] in {"help", "-h", "--help"} else 2
    extras, lines = COMMANDS[arguments[0]]
    try:
        python = set_up(extras)
    except subprocess.CalledProcessError as error:
        fail(f"setting up failed: {' '.join(map(str, error.cmd))} gave {error.returncode}")
    for line in lines:
        words = [str(python) if word == PYTHON else word for word in line]
        done = subprocess.run([str(python), *words, *arguments[1:]], cwd=ROOT, check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
