"""Which code a device runs, bundles of code, and artifacts built without a device."""

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft.codegen.cuda.toolkit import find_program
from weft.runtime.devices.cuda.bundle import LAUNCHER_MAGIC, Bundle
from weft.runtime.devices.cuda.driver import DeviceProperties
from weft.runtime.devices.cuda.errors import NoDeviceError
from weft.runtime.devices.cuda.image import (
    MAGIC,
    KernelObject,
    choose_image,
    newest_ptx,
    ptx_version,
)
from weft.support.errors import ArtifactError

PTX = ".version 8.6\n.target sm_90a\n"
PROGRAM = "def @main(%x: Tensor[(40), float32]) { multiply(add(%x, 1f), 2f) }"


def device(major, minor, **more):
    return DeviceProperties("test", (major, minor), 1 << 30, 1, **more)


@pytest.mark.parametrize(("capability", "chosen"), [
    ((9, 0), b"for 90a"), ((8, 6), b"for 86"), ((8, 9), b"for 86"), ((8, 0), b"for 80"),
])
def test_the_most_specific_code_for_a_device_is_loaded(capability, chosen):
    cubins = {"sm_80": b"for 80", "sm_86": b"for 86", "sm_90": b"for 90", "sm_90a": b"for 90a"}
    assert choose_image(PTX, "sm_90a", cubins, device(*capability), 13000, "k") == chosen


def test_devices_without_code_compile_ptx_of_older_architectures():
    assert choose_image(PTX, "sm_80", {"sm_80": b""}, device(12, 0), 13000, "k") \
        == PTX.encode() + b"\0"
    assert choose_image(PTX, "sm_90a", {}, device(9, 0), 13000, "k").startswith(b".version")
    for arch, capability in (("sm_90a", (10, 0)), ("sm_90", (8, 9)), ("sm_100a", (10, 3))):
        with pytest.raises(NoDeviceError, match="cannot run the code") as raised:
            choose_image(PTX, arch, {}, device(*capability), 13000, "k")
        assert arch in (raised.value.expected or "")
        assert raised.value.where == "k"


def test_the_emulator_runs_ptx_of_every_architecture():
    emulator = device(9, 0, any_arch=True)
    assert choose_image(PTX, "sm_100a", {"sm_90": b"x"}, emulator, 13000, "k").startswith(b".ver")


def test_ptx_that_the_driver_does_not_know_is_refused():
    with pytest.raises(NoDeviceError, match="older than the code") as raised:
        choose_image(PTX, "sm_80", {}, device(9, 0), 12040, "k")
    assert "PTX 8.6" in (raised.value.expected or "")
    assert "CUDA 12.4" in (raised.value.got or "")
    assert newest_ptx(13000) == (9, 0)
    assert newest_ptx(12080) >= (8, 6)
    assert ptx_version("nothing") == (0, 0)


def test_bundles_keep_their_parts_and_refuse_damage():
    bundle = Bundle.of([MAGIC + b"{}", b"\x7fELF one", LAUNCHER_MAGIC + b"launch", MAGIC + b"[]"])
    assert bundle == Bundle((MAGIC + b"{}", MAGIC + b"[]"), (b"\x7fELF one",), b"", b"launch")
    data = bundle.pack()
    assert Bundle.unpack(data) == bundle
    assert Bundle.unpack(memoryview(data)) == bundle
    for damaged in (b"", data[:-1], data + b"x", data[1:], data.replace(b'"host"', b'"hots"')):
        with pytest.raises(ArtifactError):
            Bundle.unpack(damaged)


@pytest.mark.skipif(find_program("ptxas") is None, reason="ptxas is not installed")
def test_artifacts_hold_machine_code_and_ptx():
    module = weft.compile(weft.parse(PROGRAM), target="cuda -arch=sm_80")
    from weft.codegen import backend_of

    backend = backend_of(module.options.target)
    with weft.config(cuda_archs=("sm_80", "sm_90")):
        bundle = Bundle.unpack(backend.link(module.recompiler.code.objects, module.options.target))
    (kernel,) = map(KernelObject.from_bytes, bundle.kernels)
    assert set(kernel.cubins) == {"sm_80", "sm_90"}
    assert all(code.startswith(b"\x7fELF") for code in kernel.cubins.values())
    assert ".entry" in kernel.ptx
    with weft.config(cuda_archs=("sm_70",)), pytest.raises(weft.WeftError):
        backend.link(module.recompiler.code.objects, module.options.target)


def test_loading_needs_the_driver_and_numpy_alone(tmp_path):
    path = tmp_path / "net.weft"
    weft.compile(weft.parse(PROGRAM), target="cuda").export(path)
    script = f"""
import sys, numpy as np, weft
module = weft.load({str(path)!r})
for _ in range(2):
    y = module(np.arange(40, dtype=np.float32))
assert (y == 2 * (np.arange(40) + 1)).all()
loaded = [name for name in ("llvmlite", "weft.ir", "weft.codegen", "weft.compiler", "numba")
          if name in sys.modules]
print(loaded)
"""
    env = {"WEFT_CUDA": "emulate", "PYTHONPATH": ":".join(sys.path)}
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                           check=False, env=env)
    assert found.stdout.strip() == "[]", found.stderr


def test_a_foreign_machine_can_compile_and_print(tmp_path):
    module = weft.compile(weft.parse(PROGRAM), target="cuda -arch=sm_90a")
    assert module.manifest.target.cpu == "cuda -arch=sm_90a"
    assert ".entry" in module.as_text("ptx")
    np.testing.assert_array_equal(module.manifest.inputs[0].shape, (40,))
