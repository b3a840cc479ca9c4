"""What the emulator shows, on a GPU: ``pytest -m gpu``. Without one, each test is skipped."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.gpu.hardware import missing, target
from tests.unit.cuda.op.cuda_cases import case_ids, run_case
from tests.unit.cuda.op.cuda_exceptions import FAILING, reason_for
from tests.unit.cuda.runtime.ptx_texts import SCALE
from weft.runtime.devices.cuda.context import context_of
from weft.runtime.devices.cuda.driver import Geometry
from weft.runtime.devices.cuda.errors import DeviceMemoryError

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(missing()), reason=missing() or "a GPU")]

MLP = """def @main(%x: Tensor[(32, 64), float32], %w: Tensor[(48, 64), float32]) {
  nn.softmax(nn.relu(nn.dense(%x, %w)))
}"""


@pytest.fixture(autouse=True)
def _on_hardware():
    with weft.config(cuda="driver"):
        yield


# Without a GPU the list is empty, which pytest reports as one skipped test.
@pytest.mark.parametrize(("name", "number"), [] if missing() else [
    pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in case_ids()
    if reason_for(FAILING["nvptx"], f"{case[0]}-{case[1]}") is None])
def test_each_case_of_each_operator(name, number):
    run_case(name, number, target(), driver="driver")


@pytest.mark.parametrize("divisor", [3, 5, 7])
def test_differences_of_quotients(divisor):
    """``ptxas`` took a carry for a borrow here: ``weft.codegen.cuda.ptxas_defects``."""
    mod = weft.parse(f"def @main(%x: Tensor[(1, 2, {divisor}, 4, 5), float32]) "
                     "{ nn.adaptive_avg_pool3d(%x, output_size=[2, 2, 3]) }")
    x = np.random.default_rng(0).standard_normal((1, 2, divisor, 4, 5), np.float32)
    np.testing.assert_allclose(weft.compile(mod, target=target())(x), weft.compile(mod)(x),
                               rtol=1e-5, atol=1e-6)


def test_kernels_are_launched():
    context = context_of(0)
    context.activate()
    driver, stream = context.driver, context.compute
    array = weft.DeviceArray.from_numpy(np.arange(64, dtype=np.float32))
    function = driver.function(driver.load_module(SCALE.encode() + b"\0"), "scale", 0)
    driver.launch(function, Geometry((2, 1, 1), (32, 1, 1)), [array.address, 64], stream)
    np.testing.assert_array_equal(array.numpy(), 2 * np.arange(64))


def test_programs_run_as_launches_and_as_graphs(tmp_path):
    mod = weft.parse(MLP)
    on_gpu, on_cpu = weft.compile(mod, target=target()), weft.compile(mod)
    generator = np.random.default_rng(0)
    for _ in range(4):
        values = [generator.standard_normal(spec.concrete_shape, np.float32)
                  for spec in on_cpu.inputs]
        np.testing.assert_allclose(on_gpu(*values), on_cpu(*values), rtol=1e-4, atol=1e-6)
    on_gpu.export(tmp_path / "net.weft")
    np.testing.assert_allclose(weft.load(tmp_path / "net.weft")(*values), on_cpu(*values),
                               rtol=1e-4, atol=1e-6)
    assert all(step.seconds > 0 for step in on_gpu.profile(*values, repeat=3).steps)


@pytest.mark.torch
def test_torch_shares_memory():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA")
    mod = weft.parse("def @main(%x: Tensor[(256), float32]) { add(%x, 1f) }")
    x = torch.arange(256, dtype=torch.float32, device="cuda")
    y = torch.from_dlpack(weft.compile(mod, target=target())(x))
    torch.testing.assert_close(y, x + 1)


def test_exhausted_memory_is_survived():
    total = context_of(0).properties.total_bytes
    with pytest.raises(DeviceMemoryError):
        weft.DeviceArray.empty((2 * total,), "uint8")
    np.testing.assert_array_equal(weft.DeviceArray.from_numpy(np.arange(9)).numpy(), np.arange(9))
