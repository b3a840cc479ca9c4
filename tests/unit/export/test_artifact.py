"""Writing artifacts."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16

import weft
from tests.unit.runtime.programs import C, code, expected, manifest, sample
from weft.export import artifact, export_artifact
from weft.runtime.artifact import load
from weft.support.errors import ArtifactError


def test_equal_modules_give_equal_files(tmp_path: Path) -> None:
    for name in ("a.weft", "b.weft"):
        export_artifact(tmp_path / name, manifest(), code(), C)
    assert (tmp_path / "a.weft").read_bytes() == (tmp_path / "b.weft").read_bytes()


def test_an_existing_file_is_replaced_under_a_loaded_module(tmp_path: Path) -> None:
    path = tmp_path / "net.weft"
    export_artifact(path, manifest(), code(), C)
    before = load(path)
    export_artifact(str(path), manifest(), code(), np.zeros_like(C))
    np.testing.assert_array_equal(before(sample()), expected(sample()))
    np.testing.assert_array_equal(load(path)(sample()), 2 * sample())


def test_readable_by_those_whom_the_umask_allows(tmp_path: Path) -> None:
    path = tmp_path / "net.weft"
    umask = os.umask(0o027)
    try:
        export_artifact(path, manifest(), code(), C)
    finally:
        os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(artifact, "write_archive", full)
    with pytest.raises(ArtifactError, match="No space left"):
        export_artifact(tmp_path / "net.weft", manifest(), code(), C)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="cannot be written"):
        export_artifact(tmp_path / "none" / "net.weft", manifest(), code(), C)


@pytest.mark.parametrize("constants", [b"", np.empty(0, np.float32)])
def test_a_module_without_weights(tmp_path: Path, constants: bytes | np.ndarray) -> None:
    path = tmp_path / "net.weft"
    bare = artifact.replace(manifest(), constants=(), constants_bytes=0, steps=())
    export_artifact(path, bare, code(), constants)
    assert load(path).manifest.constants_bytes == 0


# Loads and runs an artifact where nothing but NumPy and weft can be imported.
_BARE = """
import sys
allowed = {"numpy", "weft", *sys.stdlib_module_names}

class Missing:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in allowed and not root.startswith("_"):  # as _sysconfigdata
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import weft
mod = weft.load(sys.argv[1])
spec = mod.inputs[0]
x = np.ones(spec.concrete_shape, spec.numpy_dtype)
y = np.empty(spec.concrete_shape, spec.numpy_dtype)
assert mod(x, out=y) is y
np.testing.assert_array_equal(y, mod(x))
mod.run(None, {"x": x}), mod.profile(x, repeat=1).table(), mod.bind(x)()
print(y.ravel()[0])
"""


@pytest.mark.parametrize("text", [
    "def @main(%x: Tensor[(2, 3), float32]) { add(%x, %x) }",
    """def @main(%x: Tensor[(2, 3), float32]) { @more(%x, 2) }
       def @more(%x: Tensor[(2, 3), float32], %n: Tensor[(), int32]) -> Tensor[(2, 3), float32] {
         if (less(%n, 1)) { %x } else { add(%x, @more(multiply(%x, 0f), subtract(%n, 1))) } }""",
], ids=["compiled", "virtual machine"])
def test_an_artifact_needs_numpy_alone(tmp_path, text):
    path = tmp_path / "m.weft"
    weft.compile(weft.parse(text)).export(path)
    done = subprocess.run([sys.executable, "-c", _BARE, str(path)], capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stdout.strip() in ("1.0", "2.0")) == (0, True), done.stderr


# Runs the calls of several artifacts in one such process, where ml_dtypes is there as well.
_MANY = _BARE.partition("import numpy as np")[0].replace('"weft"', '"weft", "ml_dtypes"') + """
import pickle
import weft
found = []
for path, entry, inputs in pickle.load(sys.stdin.buffer):
    results = weft.load(path, entry=entry)(*inputs)
    found.append(results if isinstance(results, tuple) else (results,))
compiler = ("weft.ir", "weft.codegen", "weft.compiler", "weft.te", "llvmlite", "numba")
assert not [name for name in sys.modules if name.startswith(compiler)]
sys.stdout.buffer.write(pickle.dumps(found))
"""
GROW = """
    def @grow(%n: int32, %x: Tensor[(?,), float32]) -> Tensor[(?,), float32] {
      if (less(%n, 1)) { %x } else {
        @grow(subtract(%n, 1), concatenate((%x, exp(%x)), axis=0)) } }
    def @main(%n: int32, %x: Tensor[(2,), float32]) { @grow(%n, %x) }"""


@pytest.mark.filterwarnings("ignore::weft.FallbackWarning")
def test_every_form_needs_numpy_alone(tmp_path):
    """Each form of a program gives the bits of the compiled module."""
    x, two = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), np.float32([0, -1])
    softmax = "def @main(%x: Tensor[({}, 4), {}]) {{ nn.softmax(%x) }}"
    spread = {"devices": ["sim:0", "sim:1"], "placement": "cost"}
    forms = [(softmax.format("n", "float32"), {"symbolic_sizes": False}, [x]),
             (softmax.format("n", "float32"), {"specialize": {"n": [3]}}, [x]),
             (softmax.format(3, "bfloat16"), {}, [x.astype(bfloat16)]),
             ("def @main(%x: Tensor[(3, 4), float32]) { argwhere(greater(%x, 0f)) }", {}, [x]),
             ("def @main(%x: Tensor[(3, 4), float32]) { (exp(%x), tanh(%x)) }", spread, [x]),
             (GROW, {}, [np.int32(2), two])]
    modules = [weft.compile(weft.parse(text), **options) for text, options, _ in forms]
    calls, wanted = [], []
    for number, (module, (_, _, inputs)) in enumerate(zip(modules, forms, strict=True)):
        results = module(*inputs)
        wanted.append(results if isinstance(results, tuple) else (results,))
        module.export(tmp_path / f"{number}.weft", check=False)
        calls.append((tmp_path / f"{number}.weft", None, inputs))
    calls.append((tmp_path / "5.weft", None, [np.int32(3), two]))  # sizes that no call has met
    wanted.append((modules[5](*calls[-1][2]),))
    weft.export_entries({"data": modules[3], "narrow": modules[2]}, tmp_path / "two.weft")
    for entry, number in (("data", 3), ("narrow", 2)):
        calls.append((tmp_path / "two.weft", entry, forms[number][2]))
        wanted.append(wanted[number])
    done = subprocess.run([sys.executable, "-c", _MANY], capture_output=True, check=False,
                          input=pickle.dumps(calls))
    assert done.returncode == 0, done.stderr.decode()
    for found, right in zip(pickle.loads(done.stdout), wanted, strict=True):
        for one, other in zip(found, right, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_an_artifact_with_narrow_data_says_what_it_needs(tmp_path):
    path = tmp_path / "m.weft"
    weft.compile(weft.parse("def @main(%x: Tensor[(3,), bfloat16]) { add(%x, %x) }")).export(path)
    done = subprocess.run([sys.executable, "-c", _BARE, str(path)], capture_output=True, text=True,
                          check=False)
    assert "dtype bfloat16 needs the package ml_dtypes" in done.stderr
    assert "pip install ml_dtypes" in done.stderr
