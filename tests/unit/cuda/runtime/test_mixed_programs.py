"""Programs with parts on an emulated GPU and parts on the host, and programs of symbolic sizes."""

import numpy as np
import pytest

import weft
from weft.compiler.program import placement
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST, Device
from weft.runtime.devices.cuda.array import DeviceArray
from weft.support.errors import StrictError, TargetError
from weft.transform import PythonCode, register_external_codegen
from weft.transform.external.codegen import EXTERNAL_CODEGENS

GPU = Device("cuda", 0)
# The size of the result of unique depends on the data.
UNIQUE = """def @main(%x: Tensor[(16), int64]) {
  let %s = multiply(%x, 3i64);
  let %u = unique(%s, is_sorted=True);
  (%u.0, add(%s, 1i64))
}"""
CHOICE = """def @main(%x: Tensor[(8), float32]) {
  let %c = greater(take(%x, 0i64, axis=0), 0f);
  let %y = if (%c) { multiply(%x, 2f) } else { negative(%x) };
  add(%y, 1f)
}"""
LOOP = """
def @grow(%i: Tensor[(), int64], %a: Tensor[(6), float32]) -> Tensor[(6), float32] {
  if (less(%i, 5i64)) { @grow(add(%i, 1i64), add(%a, %a)) } else { %a }
}
def @main(%x: Tensor[(6), float32]) { negative(@grow(0i64, %x)) }
"""
SYMBOLIC = """def @main(%x: Tensor[(n, 8), float32]) {
  let %y = nn.relu(%x);
  (add(%y, 1f), nn.max_pool2d(reshape(%y, newshape=[1, 1, -1, 8]), pool_size=[1, 2]))
}"""


@pytest.fixture(autouse=True)
def _emulated():
    with weft.config(cuda="emulate"):
        yield


@pytest.fixture
def unique_on_host(monkeypatch):
    """Let the device refuse unique, as it would Python code."""
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    monkeypatch.setattr(placement, "must_run_on_host", lambda source: source.text == "unique")


def both(text, target="cuda"):
    mod = weft.parse(text)
    return weft.compile(mod, target=target), weft.compile(mod)


def same(found, expected):
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) \
        else [(found, expected)]
    for one, other in pairs:
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def copies(module):
    return [step for step in module.manifest.steps if step.symbol == DEVICE_COPY]


def test_sizes_that_depend_on_data_are_counted_on_the_device():
    on_gpu, on_cpu = both(UNIQUE)
    assert all(step.device == GPU for step in on_gpu.manifest.steps if step.symbol != DEVICE_COPY)
    (copy,) = copies(on_gpu)
    assert (copy.source, copy.device) == (GPU, HOST)
    assert on_gpu.manifest.counts[0].at == on_gpu.manifest.steps.index(copy)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 6, 16)
        same(on_gpu(x), on_cpu(x))


ANNOTATED = """def @main(%x: Tensor[(4, 8), float32]) {
  let %a = annotation.on_device(nn.softmax(%x), device="DEVICE");
  let %b = tanh(add(%a, %x));
  nn.softmax(%b)
}"""


@pytest.mark.parametrize("device", ["cpu", "cuda", "gpu"])
def test_annotations_choose_the_gpu_or_the_host(device):
    text = ANNOTATED.replace("DEVICE", "/device:GPU:0" if device == "gpu" else device)
    mod = weft.compile(weft.parse(text), target="cuda")
    first = next(step for step in mod.manifest.steps if step.symbol != DEVICE_COPY)
    assert first.op == "nn.softmax"
    assert first.device == (HOST if device == "cpu" else GPU)
    assert {step.device for step in mod.manifest.steps if step.symbol != DEVICE_COPY} >= {GPU}
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    same(mod(x), weft.compile(weft.parse(text))(x))


def test_names_place_tensors_on_the_host():
    mod = weft.parse(ANNOTATED.replace(', device="DEVICE"', ""))
    made = weft.compile(mod, target="cuda", placement={"b": "cpu"}, devices=["cuda", "cpu"])
    assert any(step.op and "tanh" in step.op and step.device == HOST
               for step in made.manifest.steps)


def test_a_pinned_kernel_that_the_device_refuses(monkeypatch):
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    monkeypatch.setattr(placement, "must_run_on_host", lambda source: source.text == "nn.softmax")
    mod = weft.parse(ANNOTATED.replace("DEVICE", "cuda"))
    with pytest.raises(TargetError, match="softmax cannot run on cuda"):
        weft.compile(mod, target="cuda")
    soft = weft.compile(mod, target="cuda", soft_placement=True)
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    same(soft(x), weft.compile(mod)(x))


@pytest.mark.usefixtures("unique_on_host")
def test_what_the_device_cannot_run_is_on_the_host():
    on_gpu, on_cpu = both(UNIQUE)
    devices = {step.op: step.device for step in on_gpu.manifest.steps}
    assert devices["unique"] == HOST
    assert devices["multiply"] == devices["add"] == GPU
    (copy,) = copies(on_gpu)
    assert (copy.source, copy.device, copy.bytes_moved) == (GPU, HOST, 128)
    for seed in range(3):
        x = np.random.default_rng(seed).integers(0, 6, 16)
        same(on_gpu(x), on_cpu(x))


def test_the_device_works_while_the_host_does(monkeypatch):
    monkeypatch.setenv("WEFT_NO_CACHE", "1")
    monkeypatch.setattr(placement, "must_run_on_host", lambda source: "cumsum" in source.text)
    on_gpu, on_cpu = both("""def @main(%x: Tensor[(1, 1, 16), float32]) {
      let %y = nn.max_pool1d(%x, pool_size=[2]);
      let %s = cumsum(%y, axis=2);
      (add(%s, %s), nn.max_pool1d(%y, pool_size=[3]), nn.max_pool1d(%s, pool_size=[4]))
    }""")
    steps = [(step.op, step.device) for step in on_gpu.manifest.steps]
    on_host = [n for n, (_, device) in enumerate(steps) if device == HOST]
    # The first copy, the pool that does not need the sums, and then the host.
    assert [op for op, _ in steps[:4]] == ["nn.max_pool1d", DEVICE_COPY, "nn.max_pool1d",
                                           "cumsum"], steps
    assert on_host[:2] == [1, 3]
    for seed in range(4):  # the emulated copies are done as late as CUDA allows
        x = np.random.default_rng(seed).standard_normal((1, 1, 16), np.float32)
        same(on_gpu(x), on_cpu(x))


def test_branches_and_loops_read_their_conditions_on_the_host():
    for text, value in ((CHOICE, 1.0), (CHOICE, -1.0), (LOOP, 1.5)):
        on_gpu, on_cpu = both(text)
        x = np.full(on_gpu.inputs[0].shape, value, np.float32)
        same(on_gpu(x), on_cpu(x))
        same(on_gpu(-2 * x), on_cpu(-2 * x))


def test_one_program_serves_all_sizes():
    on_gpu, on_cpu = both(SYMBOLIC)
    assert not on_gpu.reason
    for n in (5, 1, 130, 5):
        x = np.random.default_rng(n).standard_normal((n, 8), np.float32)
        same(on_gpu(x), on_cpu(x))
    with pytest.raises(weft.WeftError, match="rank"):
        on_gpu(np.zeros(3, np.float32))


def test_device_arrays_go_through_symbolic_and_counted_programs():
    on_gpu, on_cpu = both(SYMBOLIC)
    x = np.random.default_rng(0).standard_normal((7, 8), np.float32)
    results = on_gpu(DeviceArray.from_numpy(x))
    assert all(isinstance(one, DeviceArray) for one in results)
    same(tuple(one.numpy() for one in results), on_cpu(x))
    on_gpu, on_cpu = both(UNIQUE)
    values = np.arange(16) % 5
    results = on_gpu(DeviceArray.from_numpy(values))
    same(tuple(one.numpy() for one in results), on_cpu(values))


@pytest.mark.usefixtures("unique_on_host")
def test_the_host_may_be_named():
    target = {"gpu": "cuda -arch=sm_90", "host": "cpu"}
    on_gpu, on_cpu = both(UNIQUE, target)
    assert on_gpu.manifest.target.kind == "cuda"
    same(on_gpu(np.arange(16)), on_cpu(np.arange(16)))
    with pytest.raises(weft.WeftError, match="one device beside the host"):
        both(UNIQUE, {"a": "cuda", "b": "cuda", "host": "cpu"})
    with pytest.raises(weft.WeftError, match="the host is a CPU"):
        both(UNIQUE, {"gpu": "cuda", "host": "cuda"})


@pytest.mark.usefixtures("unique_on_host")
def test_mixed_programs_are_exported(tmp_path):
    on_gpu, on_cpu = both(UNIQUE)
    on_gpu.export(tmp_path / "mixed.weft")
    loaded = weft.load(tmp_path / "mixed.weft")
    x = np.arange(16) // 3
    same(loaded(x), on_cpu(x))


def test_programs_for_the_virtual_machine_run_on_the_host():
    text = """def @fib(%n: Tensor[(), int64]) -> Tensor[(), int64] {
      if (less(%n, 2i64)) { %n } else {
        add(@fib(subtract(%n, 1i64)), @fib(subtract(%n, 2i64))) }
    }
    def @main(%n: Tensor[(), int64]) { @fib(%n) }"""
    with pytest.warns(weft.FallbackWarning, match="nothing runs on cuda:0") as caught:
        on_gpu, _ = both(text)
    assert len(caught) == 1
    assert "recursion outside of tail position" in on_gpu.explain()
    assert on_gpu.manifest.target.kind == "cpu"
    assert on_gpu(np.int64(10)) == 55
    with pytest.raises(StrictError, match="nothing runs on cuda:0"):
        weft.compile(weft.parse(text), target="cuda", strict=True)


def test_state_lies_on_the_device():
    text = "def @main(%x: Tensor[(4), float32], %s: Tensor[(4), float32]) { add(%x, %s) }"
    mod = weft.parse(text)
    module = weft.compile(mod, target="cuda", state={"output": "s"})
    assert isinstance(module.state["s"], DeviceArray)
    x = np.ones(4, np.float32)
    for _ in range(3):
        module(x)
    np.testing.assert_array_equal(module.state["s"].numpy(), 3 * x)
    module.state["s"] = np.arange(4)
    module(x)
    np.testing.assert_array_equal(module.state["s"].numpy(), np.arange(4) + 1)
    module.state.reset()
    np.testing.assert_array_equal(module.state["s"].numpy(), 0 * x)


@pytest.fixture
def python_code():
    """Registers a generator that gives Python functions, for the duration of a test."""
    def register(function):
        register_external_codegen("acc", supports=("exp",), generate=lambda _: PythonCode(function))

    yield register
    EXTERNAL_CODEGENS.remove("acc")


def test_python_functions_run_on_the_host_between_kernels(python_code):
    python_code(np.exp)
    mod = weft.parse("def @main(%x: Tensor[(5), float32]) { negative(exp(add(%x, 1f))) }")
    module = weft.compile(mod, target="cuda", codegens=["acc"])
    devices = [step.device for step in module.manifest.steps if step.symbol != DEVICE_COPY]
    assert devices == [GPU, HOST, GPU]
    x = np.linspace(-1, 1, 5, dtype=np.float32)
    np.testing.assert_allclose(module(x), -np.exp(x + 1), rtol=1e-6)


def test_their_exceptions_reach_the_caller(python_code):
    def fails(_):
        raise ValueError("not today")

    python_code(fails)
    mod = weft.parse("def @main(%x: Tensor[(5), float32]) { negative(exp(add(%x, 1f))) }")
    module = weft.compile(mod, target="cuda", codegens=["acc"])
    for _ in range(2):
        with pytest.raises(weft.WeftError, match="not today"):
            module(np.zeros(5, np.float32))


@pytest.mark.parametrize(("text", "inputs"), [
    ("def @main(%x: Tensor[(0, 3), float32]) { add(%x, 1f) }", [(0, 3)]),
    ("def @main(%x: Tensor[(2, 3), float32]) { %x }", [(2, 3)]),
    ("def @main(%x: Tensor[(), float32]) { (%x, add(%x, %x), %x) }", [()]),
    ("def @main() { 3f }", []),
])
def test_programs_with_little_to_do(text, inputs):
    on_gpu, on_cpu = both(text)
    values = [np.full(shape, 2, np.float32) for shape in inputs]
    same(on_gpu(*values), on_cpu(*values))
