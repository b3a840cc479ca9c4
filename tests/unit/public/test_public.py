"""The public surface: names, what type checkers see of them, and the protocol of results."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.public import names
from weft.ir import DType
from weft.ir.python.from_python import Tensor

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAM = "def @main(%x: Tensor[({}, 2), float32]) {{ exp(%x) }}"


def compiled(size="3", **options):
    return weft.compile(weft.parse(PROGRAM.format(size)), **options)


EXECUTABLES = {"fixed": {}, "dynamic": {"size": "n"},
               "foreign": {"target": "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic"}}


def test_public_names_are_those_listed():
    """After a change that is meant: ``python -m tests.unit.public.names``."""
    assert names.listed() == names.GOLDEN.read_text(encoding="utf-8")


def test_public_names_are_those_of_their_modules():
    for name, (module, attribute) in weft._LAZY.items():
        assert getattr(importlib.import_module(module), attribute) is getattr(weft, name), name
    assert {*weft._LAZY, "__version__"} == set(weft.__all__)


@pytest.fixture(scope="module")
def reported():
    """The lines of both files that the type checker reports."""
    if importlib.util.find_spec("pyrefly") is None:
        pytest.skip("needs pyrefly")
    files = [HERE / "types_of_names.py", HERE / "wrong_types.py"]
    done = subprocess.run(
        [sys.executable, "-m", "pyrefly", "check", *map(str, files), "--output-format=json",
         "--python-interpreter-path", sys.executable, f"--search-path={ROOT}"],
        capture_output=True, text=True, check=False, cwd=HERE)
    errors = json.loads(done.stdout)["errors"]
    return {(Path(e["path"]).name, e["line"]): e["description"] for e in errors}


def test_types_of_public_names(reported):
    assert {at: text for at, text in reported.items() if at[0] == "types_of_names.py"} == {}


def test_wrong_types_are_reported(reported):
    lines = (HERE / "wrong_types.py").read_text(encoding="utf-8").splitlines()
    expected = {n for n, line in enumerate(lines, 1) if "# error" in line and "``" not in line}
    assert {line for file, line in reported if file == "wrong_types.py"} == expected


@pytest.mark.parametrize("kind", EXECUTABLES)
def test_every_result_is_an_executable(kind):
    module = compiled(**EXECUTABLES[kind])
    assert type(module) is weft.Executable
    assert (module.is_dynamic, module.runs_here) == (kind == "dynamic", kind != "foreign")
    assert [spec.name for spec in module.inputs] == ["x"]
    assert module.manifest.inputs == module.inputs
    assert module.options.opt_level == 3
    assert "exp" in module.as_text()
    assert module.as_dot().startswith("digraph")
    assert "svg" in module.as_svg()


def test_only_two_kinds_run():
    x = np.ones((3, 2), np.float32)
    for kind in ("fixed", "dynamic"):
        module = compiled(**EXECUTABLES[kind])
        np.testing.assert_allclose(module(x), np.exp(x), rtol=1e-6)
        np.testing.assert_allclose(module.bind(x)(), np.exp(x), rtol=1e-6)
        np.testing.assert_allclose(module.run(None, {"x": x})[0], np.exp(x), rtol=1e-6)
        assert module.profile(x, repeat=1).table()
    foreign = compiled(**EXECUTABLES["foreign"])
    for call in (foreign, foreign.bind, foreign.profile, lambda x: foreign.run(None, {"x": x})):
        with pytest.raises(weft.errors.TargetError, match="another machine"):
            call(x)


def test_old_names_of_executables_warn_and_tell_the_kinds_apart(tmp_path):
    made = {kind: compiled(**options) for kind, options in EXECUTABLES.items()}
    made["fixed"].export(tmp_path / "m.weft")
    made["loaded"] = weft.load(tmp_path / "m.weft")
    for name, kinds in (("CompiledModule", {"fixed", "loaded"}), ("CompiledModel", {"fixed"}),
                        ("DynamicModel", {"dynamic"}), ("ForeignModel", {"foreign"})):
        with pytest.warns(DeprecationWarning, match=f"weft.{name} is now weft.Executable"):
            old = getattr(weft, name)
        assert {kind for kind, one in made.items() if isinstance(one, old)} == kinds
        assert not isinstance(3, old)


def test_what_only_a_compilation_answers_is_refused_by_an_artifact(tmp_path):
    compiled().export(tmp_path / "m.weft")
    loaded = weft.load(tmp_path / "m.weft")
    for ask in (loaded.as_text, loaded.as_dot, loaded.as_svg,
                lambda: loaded.export(tmp_path / "again.weft"), lambda: loaded.options):
        with pytest.raises(weft.errors.ArtifactError, match="an artifact does not contain"):
            ask()
    assert loaded.specialize({"x": (3, 2)}) is loaded


def test_a_python_function_is_a_model():
    @weft.function
    def twice(x: Tensor[(4,), DType("float", 32)]):
        return x + x

    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(weft.compile(twice)(x), 2 * x)
    assert "add" in weft.compile(twice).as_text("import")
    assert weft.value_and_grad(twice, cotangent="ones")["main"] is not None


def test_the_error_for_other_values_names_what_is_taken():
    with pytest.raises(weft.errors.InvalidModelError, match="not a model") as found:
        weft.compile(42)
    for word in ("path", "ModelProto", "ExportedProgram", "IRModule", "@weft.function"):
        assert word in found.value.expected


def test_modules_that_documents_name_can_be_imported():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md"),
             *(ROOT / "docs" / "tutorials").glob("*.md")]
    pages.remove(ROOT / "docs" / "renamed.md")  # whose old names warn
    found = {name for page in pages
             for name in re.findall(r"\bweft(?:\.[a-z_]\w*)+", page.read_text(encoding="utf-8"))}
    assert "weft.ir.typing.relations" in found
    for name in sorted(found - {"weft.plugins"}):  # the group of entry points
        if "torch" in name:
            continue
        assert _resolves(name), name


def _resolves(name):
    """Whether a dotted name is a module, or a chain of attributes of one."""
    parts = name.split(".")
    for split in range(len(parts), 0, -1):
        module = ".".join(parts[:split])
        try:
            value = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for attribute in parts[split:]:
            if not hasattr(value, attribute):
                return False
            value = getattr(value, attribute)
        return True
    return False


def test_a_name_whose_module_is_not_installed_says_what_to_install(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution weft-runtime lists the names of weft, and has fewer modules."""
    monkeypatch.setitem(weft._LAZY, "elsewhere", ("weft.not_installed", "elsewhere"))
    with pytest.raises(weft.errors.MissingToolError, match="pip install weft"):
        _ = weft.elsewhere
