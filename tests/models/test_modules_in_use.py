"""Modules as programs use them: from many threads, from a file, in a process without a compiler."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.fuzz.small_models import convolutional
from tests.models.randomize import light_model_output, light_model_path
from weft.frontend.onnx import from_onnx
from weft.runtime import launchers
from weft.support.errors import ArtifactError, TargetError
from weft.transform.analysis.reference import evaluate

CALLERS, ROUNDS = 6, 40


@pytest.fixture(scope="module")
def module() -> weft.Executable:
    compiled = weft.compile(convolutional())
    assert not compiled.is_dynamic
    return compiled


def images(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(2)
    shape = from_onnx(convolutional())["main"].params[0].checked_type.concrete_shape
    return [rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("threads", [1, 2])
def test_many_python_threads_on_one_module(
    module: weft.Executable, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All start together, each with an image of its own; nobody sees another's numbers."""
    monkeypatch.setenv("WEFT_THREADS", str(threads))
    given = images(CALLERS)
    expected = [module(x) for x in given]
    gate = threading.Barrier(CALLERS)

    def caller(number: int) -> int:
        gate.wait()
        return sum(
            not np.array_equal(module(given[number]), expected[number]) for _ in range(ROUNDS)
        )

    with ThreadPoolExecutor(CALLERS) as pool:
        wrong = list(pool.map(caller, range(CALLERS)))
    assert wrong == [0] * CALLERS
    assert not np.array_equal(expected[0], expected[1])


def test_results_of_threads_are_right(module: weft.Executable) -> None:
    (x,) = images(1)
    np.testing.assert_allclose(
        module(x), evaluate(from_onnx(convolutional()), [x]), rtol=1e-3, atol=1e-5
    )


# Everything but NumPy, its dtypes and what they need is hidden, as if it were not installed.
BARE = """
    import sys
    from pathlib import Path

    HIDDEN = {"llvmlite", "numba", "onnx", "lark", "rich", "click", "torch", "filelock",
              "platformdirs", "safetensors", "onnxruntime"}
    COMPILER = ("ir", "te", "tir", "topi", "op", "codegen", "transform", "strategy", "frontend",
                "export", "compiler", "target")

    class Hide:
        def find_spec(self, name, path=None, target=None):
            first, _, rest = name.partition(".")
            if first in HIDDEN or (first == "weft" and rest.split(".")[0] in COMPILER):
                raise ModuleNotFoundError(f"{name} is hidden", name=name)

    sys.meta_path.insert(0, Hide())
    import numpy as np
    import weft

    folder = Path(sys.argv[1])
    module = weft.load(folder / "net.weft")
    np.save(folder / "y.npy", module(np.load(folder / "x.npy")))
"""


@pytest.mark.parametrize("name", ["small", "squeezenet"])
def test_an_artifact_in_a_process_with_numpy_alone(
    name: str, module: weft.Executable, tmp_path: Path
) -> None:
    if name == "small":
        (x,) = images(1)
        module.export(tmp_path / "net.weft")
        expected = module(x)
    else:
        x = np.ones((1, 3, 224, 224), np.float32)
        whole = weft.compile(light_model_path(name))
        whole.export(tmp_path / "net.weft")
        expected = whole(x)
        np.testing.assert_allclose(expected, light_model_output(name), rtol=1e-3, atol=1e-6)
    np.save(tmp_path / "x.npy", x)
    subprocess.run([sys.executable, "-c", textwrap.dedent(BARE), str(tmp_path)], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), expected)


def test_an_artifact_on_a_cpu_that_lacks_instructions(
    module: weft.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.weft"
    module.export(path)
    features = sorted(module.manifest.target.features)
    if not features:
        pytest.skip("code for this CPU needs no optional instructions")
    lacking = features[-2:]
    monkeypatch.setattr(
        launchers, "host_features", lambda: frozenset(features).difference(lacking)
    )
    with pytest.raises(ArtifactError) as caught:
        weft.load(path)
    assert str(caught.value) == textwrap.dedent(f"""
        {ArtifactError.code} this CPU lacks instructions that the artifact uses
          --> {path}
          expected: {module.manifest.target.cpu} with {", ".join(lacking)}
          got: a CPU without them
          help: compile for an older CPU, such as target="llvm -mcpu=haswell"
    """).strip()


def test_another_operating_system_compiles_and_exports_and_says_why_it_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = weft.parse("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    with monkeypatch.context() as patch:
        patch.setattr(launchers, "system", lambda: "darwin")
        model = weft.compile(program)
        with pytest.raises(TargetError, match="another machine") as caught:
            model(np.float32([1, 2]))
        assert (caught.value.expected, caught.value.got) == ("linux", "darwin")
        assert caught.value.notes == ("weft runs compiled code on Linux only",)
        model.export(tmp_path / "net.weft")
    found = weft.load(tmp_path / "net.weft")(np.float32([1, 2]))
    np.testing.assert_allclose(found, np.exp(np.float32([1, 2])), rtol=1e-6)


def test_an_artifact_of_another_architecture(
    module: weft.Executable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "net.weft"
    module.export(path)
    monkeypatch.setattr(launchers, "machine", lambda: "riscv64")
    with pytest.raises(ArtifactError) as caught:
        weft.load(path)
    assert str(caught.value) == textwrap.dedent(f"""
        {ArtifactError.code} the artifact was made for another machine
          --> {path}
          expected: {module.manifest.target.triple}
          got: riscv64 (this machine)
          help: compile the model for "riscv64" and export it again
    """).strip()
