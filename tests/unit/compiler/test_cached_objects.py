"""What is found in the store and not made again: main functions, the runtime support, kernels."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.codegen import backend_of
from weft.codegen.launch import LaunchProgram
from weft.codegen.llvm.backend import CpuBackend
from weft.compiler.build import kernels
from weft.compiler.build.cached_objects import main_object, support_objects
from weft.compiler.build.kernel_set import kernel_source
from weft.compiler.program.lowering import primitive_of
from weft.ir import structural_hash
from weft.strategy.records import Record, Records
from weft.support import fingerprint
from weft.target import Target

LAUNCHES = LaunchProgram(1, 1, ())
TARGET = Target.of("cpu")
OTHER = Target.of("llvm -mcpu=haswell")


@pytest.fixture
def built(monkeypatch, tmp_path):
    """The main functions and supports that were built, in an empty store."""
    calls = []
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(CpuBackend, "build_main",
                        lambda _, program, target: calls.append(program) or b"main" * 3)
    monkeypatch.setattr(CpuBackend, "support_objects",
                        lambda _, target: calls.append(target) or (b"one", b"", b"three"))
    support_objects.cache_clear()
    yield calls
    support_objects.cache_clear()


def test_a_main_function_is_built_once_for_equal_launches(built):
    backend = backend_of(TARGET)
    for _ in range(2):
        again = LaunchProgram(1, 1, ())
        assert main_object(backend, again, TARGET) == b"main" * 3
    assert len(built) == 1


@pytest.mark.parametrize(("launches", "target"), [
    (dataclasses.replace(LAUNCHES, num_inputs=2), TARGET),
    (dataclasses.replace(LAUNCHES, symbols=("n",)), TARGET),
    (LAUNCHES, OTHER),
], ids=["inputs", "symbols", "target"])
def test_other_launches_and_targets_have_main_functions_of_their_own(built, launches, target):
    main_object(backend_of(TARGET), LAUNCHES, TARGET)
    main_object(backend_of(target), launches, target)
    assert len(built) == 2


def test_another_compiler_builds_again(built, monkeypatch):
    main_object(backend_of(TARGET), LAUNCHES, TARGET)
    monkeypatch.setattr(fingerprint, "compiler_digest", lambda: "another")
    main_object(backend_of(TARGET), LAUNCHES, TARGET)
    assert len(built) == 2


def test_the_runtime_support_is_kept_by_target(built):
    for _ in range(2):
        support_objects.cache_clear()
        assert support_objects(backend_of(TARGET), TARGET) == (b"one", b"", b"three")
    assert len(built) == 1
    support_objects(backend_of(OTHER), OTHER)
    assert built[1:] == [OTHER]


def kernel_of(text):
    function = primitive_of(weft.parse(text)["main"].body)
    return kernel_source(function, structural_hash(function))


def test_each_ingredient_of_a_kernel_changes_its_key(monkeypatch):
    relu = "def @main(%x: Tensor[(4), float32]) { nn.relu(%x) }"
    source = kernel_of(relu)
    key = kernels._keys([source], TARGET)[0]
    assert kernels._keys([kernel_of(relu)], TARGET)[0] == key
    record = Record(source.digest, "", str(TARGET), "nn.relu.cpu.other", 1.0, 1)
    others = [
        kernels._keys([kernel_of(relu.replace("4", "5"))], TARGET)[0],
        kernels._keys([kernel_of(relu.replace("32", "64"))], TARGET)[0],
        kernels._keys([kernel_of(relu.replace("nn.relu", "tanh"))], TARGET)[0],
        kernels._keys([source], OTHER)[0],
    ]
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "active_records", lambda: Records.of([record]))
        others.append(kernels._keys([source], TARGET)[0])
    with monkeypatch.context() as patch:
        patch.setattr(fingerprint, "compiler_digest", lambda: "another")
        others.append(kernels._keys([source], TARGET)[0])
    assert len({key, *others}) == 7


def test_a_store_with_kernels_of_this_compiler_is_known(monkeypatch, tmp_path):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "store"))
    assert not fingerprint.holds_kernels()
    weft.compile(weft.parse("def @main(%x: Tensor[(3), float32]) { tanh(%x) }"))
    assert fingerprint.holds_kernels()
    monkeypatch.setattr(fingerprint, "compiler_digest", lambda: "another")
    assert not fingerprint.holds_kernels()


SCRIPT = """
import sys
import numpy as np
import weft
model = weft.compile(weft.parse("def @main(%x: Tensor[(3), float32]) { tanh(%x) }"))
sys.stdout.buffer.write(model(np.array([0.0, 1.0, -2.0], np.float32)).tobytes())
sys.stderr.write("\\n".join(sys.modules))
"""


def test_a_program_in_the_store_loads_nothing_that_makes_code(tmp_path):
    environment = {**os.environ, "WEFT_CACHE_DIR": str(tmp_path), "WEFT_VERIFY": "1"}
    first, second = (subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True,
                                    check=True, env=environment) for _ in range(2))
    assert first.stdout == second.stdout
    assert np.frombuffer(first.stdout, np.float32)[1] == pytest.approx(np.tanh(1.0))
    loaded = set(second.stderr.decode().split())
    assert not loaded & {"llvmlite", "weft.compiler.pipeline", "weft.compiler.build.kernels",
                         "weft.strategy.cpu", "weft.te.schedule", "weft.tir.transform.pipeline"}
