"""Build the wheel, install it into an empty environment, and use it there as a user would.

Nothing of the tree is on the path of that environment: what the wheel lacks is missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tools.dev import has_linker

ROOT = Path(__file__).resolve().parents[1]

COMPILE = """
import pathlib, sys
import numpy as np
import weft

assert pathlib.Path(weft.__file__).is_relative_to(sys.prefix), weft.__file__
mod = weft.compile(weft.parse(
    "def @main(%x: Tensor[(4, 6), float32], %w: Tensor[(8, 6), float32])"
    " { nn.softmax(nn.relu(nn.dense(%x, %w))) }"))
x, w = (np.random.default_rng(0).standard_normal(s, np.float32) for s in ((4, 6), (8, 6)))
raised = np.exp(np.maximum(x @ w.T, 0))
np.testing.assert_allclose(mod(x, w), raised / raised.sum(1, keepdims=True), rtol=1e-5)
mod.export("net.weft")
np.savez("io.npz", x=x, w=w, y=mod(x, w))
"""
LOAD = """
import numpy as np
import weft

stored = np.load("io.npz")
np.testing.assert_array_equal(weft.load("net.weft")(stored["x"], stored["w"]), stored["y"])
print("weft", weft.__version__, "compiles, exports and loads a model")
"""


# The runtime alone: no other module of weft, no compiler.
LOAD_ALONE = LOAD.replace("compiles, exports and loads", "loads, without the compiler,") + """
import importlib.metadata
import importlib.util
assert weft.__version__ == importlib.metadata.version("weft-runtime")
assert not any(importlib.util.find_spec(name) for name in ("llvmlite", "numba", "weft.compiler"))
try:
    weft.compile
except weft.WeftError as error:
    assert "pip install weft" in str(error), error
else:
    raise AssertionError("there is a compiler")
"""
MOST_RUNTIME_BYTES = 1_000_000
# Tests of each layer, which run beside the installed wheel where no sources of weft are.
OUTSIDE = ("ir/test_text.py", "te/test_primitives.py", "transform/test_folding.py",
           "runtime/test_module.py", "runtime/test_artifact.py", "cli/test_man_page.py")


def build(folder: Path, project: Path = ROOT) -> Path:
    """The wheel of the tree, or of another project."""
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
                    "--disable-pip-version-check", "--wheel-dir", str(folder), str(project)],
                   check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def build_twice(folder: Path, project: Path, sboms: str) -> Path | None:
    """The wheel of a project, which lists what it depends on; ``None`` where two builds differ."""
    wheel = build(folder / "first", project)
    if wheel.read_bytes() != build(folder / "second", project).read_bytes():
        print(f"two builds of {wheel.name} differ")
        return None
    with zipfile.ZipFile(wheel) as files:
        if not any(name.endswith(f".dist-info/sboms/{sboms}") for name in files.namelist()):
            print(f"{wheel.name} has no list of what it depends on: {sboms}")
            return None
    return wheel


def install(wheel: Path, folder: Path, extras: str = "") -> Path:
    """The programs of an environment that holds the wheel and what it depends on."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet",
                    "--disable-pip-version-check", f"{wheel}{extras}"], check=True)
    return folder / "bin"


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build_twice(folder / "compiler", ROOT, "weft.cdx.json")
        if wheel is None:
            return 1
        programs = install(wheel, folder / "env", "" if has_linker() else "[linker]")
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith(("PYTHON", "WEFT_"))}
        environment["WEFT_CACHE_DIR"] = str(folder / "cache")
        for command in (["python", "-c", COMPILE], ["python", "-c", LOAD], ["weft", "--help"],
                        ["weft", "doctor"]):
            done = subprocess.run([str(programs / command[0]), *command[1:]], cwd=folder,
                                  env=environment, check=False)
            if done.returncode:
                print(f"{' '.join(command)} ended with {done.returncode}")
                return 1
        if not (folder / "env" / "share" / "man" / "man1" / "weft.1").is_file():
            print("the wheel installs no manual page")
            return 1
        return (check_outside(folder / "outside", programs, environment)
                or check_runtime(folder, environment))


def check_outside(folder: Path, programs: Path, environment: dict[str, str]) -> int:
    """Run some tests in a folder that has the tests and nothing else of the tree."""
    shutil.copytree(ROOT / "tests", folder / "tests",
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)  # the settings of pytest
    for command in (["pip", "install", "--quiet", "--disable-pip-version-check", "pytest",
                     "hypothesis"],
                    ["pytest", "-q", "-p", "no:cacheprovider",
                     *(f"tests/unit/{path}" for path in OUTSIDE)]):
        done = subprocess.run([str(programs / "python"), "-m", *command], cwd=folder,
                              env=environment, check=False)
        if done.returncode:
            print(f"{command[0]} ended with {done.returncode} beside the wheel")
            return 1
    return 0


def check_runtime(folder: Path, environment: dict[str, str]) -> int:
    """Load the artifact of ``folder`` where the distribution without the compiler is installed."""
    wheel = build_twice(folder / "runtime", ROOT / "packaging" / "runtime", "weft-runtime.cdx.json")
    if wheel is None:
        return 1
    size = wheel.stat().st_size
    if size >= MOST_RUNTIME_BYTES:
        print(f"{wheel.name} has {size} bytes, at most {MOST_RUNTIME_BYTES}")
        return 1
    programs = install(wheel, folder / "small")
    done = subprocess.run([str(programs / "python"), "-c", LOAD_ALONE], cwd=folder, env=environment,
                          check=False)
    if done.returncode:
        print(f"{wheel.name} does not load an artifact")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
