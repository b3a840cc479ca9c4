"""Set up and run everything a developer needs, with nothing but Python.

    python3 tools/dev.py demo           compile and run a real model
    python3 tools/dev.py test           the tests; test-onnx and test-torch run two more suites
    python3 tools/dev.py test-fast      the tests that take seconds
    python3 tools/dev.py test-all       every test of all suites, long tables whole
    python3 tools/dev.py test-onnx      the suite of the onnx package, with counts
    python3 tools/dev.py test-cuda      every operator case on an emulated GPU, by both compilers
    python3 tools/dev.py test-language  language models beside llama.cpp, damaged files
    python3 tools/dev.py test-layers    all layers of weft.nn beside torch's
    python3 tools/dev.py test-scale     several processes: executors, Dask, collectives, faults
    python3 tools/dev.py test-targets   operator cases and models on emulated machines, WebAssembly
    python3 tools/dev.py test-torch     PyTorch models and torch.compile (a larger download)
    python3 tools/dev.py test-wheel     the wheel, installed into an empty environment
    python3 tools/dev.py test-other-python  a hundred tests with the newest other Python found
    python3 tools/dev.py fuzz           a minute of random programs with a new seed
    python3 tools/dev.py examples       the examples, briefly
    python3 tools/dev.py docs           the site, in out/site; warnings are errors
    python3 tools/dev.py docs-test      the site in a browser, all programs of all pages, notebooks
    python3 tools/dev.py docs-links     every address that pages link to; it needs a network
    python3 tools/dev.py docs-versions  the sites of all versions side by side, in out/versions
    python3 tools/dev.py lint|types|layers|size|api
    python3 tools/dev.py bench          latency beside other runtimes (a larger download)
    python3 tools/dev.py bench-kernels  single kernels beside other runtimes, limits and predictions
    python3 tools/dev.py bench-compile  how long kernels and models take to be ready
    python3 tools/dev.py venv           only set up

    python3 tools/dev.py --python 3.13 test     the same with another Python (`make test PYTHON=…`)

It runs with the Python that starts it where weft supports that, else with the newest one on the
path that weft supports. A virtual environment is made once in ``.venv``, those of other versions of
Python in ``.venv-3.13`` and so on; it is set up again only when ``pyproject.toml`` changes.
``WEFT_VENV`` names another place, ``WEFT_PYTHON`` an interpreter that has everything already.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The versions of Python that weft supports, as ``pyproject.toml`` says.
SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
PYTHON = "{python}"  # stands for the interpreter of the environment

COMMANDS: dict[str, tuple[str, list[list[str]]]] = {
    "venv": ("dev", []),
    "venv-torch": ("dev,torch-test", []),
    "demo": ("dev", [["examples/demo.py"]]),
    "test": ("dev", [["-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "--durations=10",
                      "-m", "not torch"]]),
    "test-fast": ("dev", [["-m", "pytest", "-q", "-n", "auto", "-m", "not slow and not torch"]]),
    "test-torch": ("dev,torch-test", [
        ["-c", "import torch, transformers, onnxscript"],
        ["-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", "--durations=10",
         "-m", "torch"]]),
    "test-onnx": ("dev", [["-m", "tests.onnx.count"]]),
    "test-cuda": ("dev", [["-m", "tests.unit.cuda.op.cuda_cases"],
                          ["-m", "tests.unit.cuda.op.cuda_cases", "--nvvm"],
                          ["-m", "tests.unit.cuda.op.cuda_assembly"],
                          ["-m", "tests.unit.cuda.models.cuda_models"]]),
    "test-language": ("dev,torch-test,language-test", [
        ["-m", "pytest", "-q", "tests/unit/generation/text", "tests/models",
         "tests/unit/cli/test_language_commands.py"],
        ["-m", "tests.language.mutated_files"], ["-m", "tests.language.llama_cpp"]]),
    "test-layers": ("dev,torch-test", [["-m", "tests.unit.nn.all_twins"]]),
    "test-scale": ("dev,torch-test", [["-m", "pytest", "-q", "--durations=10", "tests/scale"]]),
    "venv-targets": ("dev,targets-test", []),
    "test-targets": ("dev,targets-test", [["-m", "tests.targets.all_cases", "--install"],
                                          ["-m", "pytest", "-q", "tests/targets"]]),
    "test-wheel": ("dev", [["-m", "tools.check_wheel"]]),
    "test-other-python": ("dev", [["tools/other_python.py", "test-hundred"]]),
    "test-hundred": ("test", [["-c", "import sys, weft; print(sys.version, weft.__version__)"],
                              ["-m", "pytest", "-q", "-m", "not slow and not torch"]]),
    "fuzz": ("dev", [["-m", "tests.fuzz.minute"]]),
    "examples": ("dev,torch-test", [["-m", "tools.run_examples"]]),
    "docs": ("dev,docs", [["-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto", "docs",
                           "out/site"]]),
    "docs-test": ("dev,docs-test,torch-test", [["-m", "tests.docs.browser"],
                                          ["-m", "tools.site.notebooks", "--run"],
                                          ["-m", "pytest", "-q", "tests/docs"]]),
    "docs-links": ("dev,docs", [["-m", "tools.site.links"]]),
    "docs-versions": ("dev,docs", [["-m", "tools.site.versions"]]),
    "lint": ("dev", [["-m", "ruff", "check", "."]]),
    "types": ("dev", [["-m", "pyrefly", "check", "--python-interpreter-path", PYTHON]]),
    "layers": ("dev", [["-c", "from importlinter.cli import lint_imports_command as c; c()"]]),
    "size": ("dev", [["tools/check_size.py"]]),
    "api": ("dev", [["tools/api_record.py"]]),
    "bench": ("dev,bench", [["-m", "benchmarks"]]),
    "bench-kernels": ("dev,bench", [["-m", "benchmarks.kernels"],
                                    ["-m", "benchmarks.kernels", "--predictions",
                                     "--models", "*"]]),
    "bench-compile": ("dev,bench", [["-m", "benchmarks.kernel_compile"],
                                    ["-m", "benchmarks.ready"]]),
}
COMMANDS["docs-test"][1].insert(0, COMMANDS["docs"][1][0])
COMMANDS["test-all"] = ("dev,torch-test", [
    line for name in ("test", "test-torch", "test-onnx", "test-cuda", "test-layers")
    for line in COMMANDS[name][1]])
# Settings of single commands; ``tests/sampling.py`` explains them.
SETTINGS = {"test-all": {"WEFT_TEST_SHARE": "1"}, "test-hundred": {"WEFT_TEST_COUNT": "100"},
            "docs-test": {"WEFT_TEST_SHARE": "1"},
            "test-language": {"WEFT_TEST_SHARE": "1"}, "test-scale": {"WEFT_TEST_SHARE": "1"}}


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def spelled(version: Sequence[int]) -> str:
    return f"{version[0]}.{version[1]}"


def other_python(wanted: str | None) -> str | None:
    """The interpreter to start instead of this one; ``None`` where this one will do.

    ``wanted`` is a version such as 3.12. Ends the program where there is none.
    """
    own = tuple(sys.version_info[:2])
    versions = [v for v in reversed(SUPPORTED) if wanted is None or spelled(v) == wanted]
    if not versions:
        fail(f"weft does not support Python {wanted}; it supports "
             + ", ".join(map(spelled, SUPPORTED)))
    if own in versions:
        return None
    for version in versions:
        found = shutil.which(f"python{spelled(version)}")
        if found is not None:
            return found
    names = ", ".join(f"python{spelled(version)}" for version in versions)
    fail(f"this is Python {spelled(own)}, and the path has none of {names}. Install one of them, "
         "or run this file with one: path/to/python tools/dev.py ...")
    return None


def venv() -> Path:
    """The folder of the environment for this version of Python."""
    if "WEFT_VENV" in os.environ:
        return Path(os.environ["WEFT_VENV"])
    usual = ROOT / ".venv"
    if made_for(usual) in (None, spelled(sys.version_info)):
        return usual
    return ROOT / f".venv-{spelled(sys.version_info)}"


def made_for(folder: Path) -> str | None:
    """The version of Python of an environment; ``None`` where there is no environment."""
    try:
        lines = (folder / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    values = {key.strip(): value.strip() for key, _, value in (x.partition("=") for x in lines)}
    version = values.get("version") or values.get("version_info") or ""
    return ".".join(version.split(".")[:2])


def interpreter() -> Path:
    folder, name = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return venv() / folder / name


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
        version = spelled(sys.version_info)
        fail("python3 has no `venv` with pip here. On Debian and Ubuntu:\n"
             f"    sudo apt install python{version}-venv\n"
             "then run the same command again.")
    print(f"making a virtual environment in {venv()}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(venv())], check=True)


def set_up(extras: str) -> Path:
    """The interpreter of an environment that holds weft and ``extras``."""
    if "WEFT_PYTHON" in os.environ:
        return Path(os.environ["WEFT_PYTHON"])
    if not has_linker():
        extras += ",linker"
    stamp = venv() / f".weft-{extras.replace(',', '-')}"
    wanted = wanted_state(extras)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return interpreter()
    make_environment()
    print(f"installing weft with [{extras}]; this happens once", flush=True)
    # Commands find bytecode elsewhere (``environment``): pip need not make it.
    subprocess.run([str(interpreter()), "-m", "pip", "install", "--quiet", "--progress-bar", "off",
                    "--no-compile", "--disable-pip-version-check", "-e", f"{ROOT}[{extras}]"],
                   check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return interpreter()


def environment(command: str) -> dict[str, str]:
    """The environment of ``command``, in which Python keeps bytecode beside its own environment.

    Tests start many interpreters, and each would compile weft for a second.
    """
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for name, value in SETTINGS.get(command, {}).items():
        kept.setdefault(name, value)  # the gate asks for less of a suite
    if "WEFT_PYTHON" not in os.environ:
        kept.setdefault("PYTHONPYCACHEPREFIX", str(venv() / "pycache"))
    return kept


def main(arguments: list[str]) -> int:
    wanted = None
    if arguments[:1] == ["--python"] and len(arguments) > 1:
        wanted, arguments = arguments[1], arguments[2:]
    other = None if "WEFT_PYTHON" in os.environ else other_python(wanted)
    if other is not None:
        return subprocess.run([other, __file__, *arguments], check=False).returncode
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
        done = subprocess.run([str(python), *words, *arguments[1:]], cwd=ROOT, check=False,
                              env=environment(arguments[0]))
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
