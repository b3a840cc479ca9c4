"""Kernels of other compilers: PTX texts and kernels of numba as implementations of operators."""

from __future__ import annotations

import math
import os
import subprocess
import sys

import numpy as np
import pytest

import weft
from tests.unit.cuda.codegen import foreign_operator
from tests.unit.cuda.codegen.emulated import compiled, run_emulated
from tests.unit.cuda.codegen.foreign_operator import SQUARE_PTX
from weft import te
from weft.codegen.cuda.numba_functions import numba_cuda
from weft.codegen.cuda.ptxas import assemble
from weft.codegen.cuda.toolkit import find_library, find_program
from weft.support.errors import CodegenError, LoweringError, MissingToolError, OperatorError
from weft.target import CudaTarget
from weft.te.lower import lower
from weft.testing.cuda import DeviceMemory, launch, load_ptx
from weft.tir.foreign_kernel import ptx_entries
from weft.tir.func import PrimFunc

cuda = pytest.importorskip("numba_cuda") and pytest.importorskip("numba.cuda")
needs_ptxas = pytest.mark.skipif(find_program("ptxas") is None, reason="ptxas is not installed")
needs_nvvm = pytest.mark.skipif(find_library("nvvm") is None, reason="libnvvm is not installed")
SOURCE = "def @main(%x: Tensor[({}50), float32]) {{ tanh(test.squared(%x)) }}"
ROUTES = [CudaTarget(), pytest.param(CudaTarget(codegen="nvvm"), marks=needs_nvvm)]
BY_ROUTE = pytest.mark.parametrize("target", ROUTES, ids=["nvptx", "nvvm"])


@cuda.jit(device=True)
def softened(v):
    return math.exp(-abs(v))


@cuda.jit
def reversed_rows(x, y, scale, count):
    """Reverses each row in shared memory; one block for each."""
    row = cuda.shared.array(64, "float32")
    i, j = cuda.blockIdx.x, cuda.threadIdx.x
    row[j] = softened(x[i, j])
    cuda.syncthreads()
    if j < count:
        y[i, j] = row[x.shape[1] - 1 - j] * scale


@cuda.jit(device=True)
def running_sums(x, y, start):
    total = start
    for i in range(x.size):
        total += softened(x[i])
        y[i] = total


@cuda.jit(fastmath=True, launch_bounds=32)
def sums_of_warps(x, y):
    """Needs an intrinsic that LLVM no longer has, and dynamic shared memory."""
    kept = cuda.shared.array(0, "float32")
    i, j = cuda.blockIdx.x, cuda.threadIdx.x
    kept[j] = x[i, j]
    cuda.syncwarp()
    value = kept[31 - j]
    for distance in (16, 8, 4, 2, 1):
        value += cuda.shfl_xor_sync(0xFFFFFFFF, value, distance)
    if j == 0:
        cuda.atomic.add(y, 0, value)


def rows_then_one(kernel=reversed_rows, **options) -> PrimFunc:
    """A kernel of numba, then one of weft that adds 1, over a dynamic number of rows."""
    n = te.var("n")
    a = te.placeholder((n, 64), name="A")
    (b,) = te.device_kernel([(n, 64)], [a], kernel, ["float32"],
                            **{"grid": n, "block": 64, "scalars": [2.0, 64], **options})
    c = te.compute((n, 64), lambda i, j: b[i, j] + 1.0, name="C")
    return lower(te.create_schedule(c), [a, c], "rows")


def by_ptx(text=SQUARE_PTX, **options) -> te.Tensor:
    a = te.placeholder((96,), name="A")
    return te.device_kernel([(96,)], [a], text, ["float32"], **{
        "grid": 2, "block": 64, "scalars": [96], "order": (1, 0, 2), **options})[0]


def function_of(result: te.Tensor) -> PrimFunc:
    return lower(te.create_schedule(result), [*result.op.inputs, result], "f")


@BY_ROUTE
def test_a_kernel_of_numba_runs_between_kernels_of_weft(target):
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    out = np.zeros_like(x)
    image = run_emulated(rows_then_one(), [x], [out], {"n": 3}, target)
    np.testing.assert_allclose(out, np.exp(-abs(x))[:, ::-1] * 2 + 1, rtol=1e-6)
    assert [launch.block for launch in image.launches] == [(64, 1, 1), (256, 1, 1)]
    again = compiled(rows_then_one(), target)
    assert again.ptx == image.ptx  # no counters of numba in names


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("codegen", ["nvptx", pytest.param("nvvm", marks=needs_nvvm)])
def test_the_code_of_all_compilers_assembles_together(codegen, arch):
    b = by_ptx()
    c = te.compute((96,), lambda i: b[i] * 2.0, name="C")
    own_and_ptx = lower(te.create_schedule(c), [*b.op.inputs, c], "doubled")
    for func, entry in ((rows_then_one(), "reversed_rows"), (own_and_ptx, "square")):
        image = compiled(func, CudaTarget(arch, codegen=codegen))
        found = assemble(image.ptx, arch).resources
        assert {*found} == {one.entry for one in image.launches}
        assert any(name.startswith(entry) for name in found)


@needs_nvvm
@BY_ROUTE
def test_shuffles_atomics_and_dynamic_shared_memory(target):
    a = te.placeholder((3, 32), name="A")
    (b,) = te.device_kernel([(1,)], [a], sums_of_warps, ["float32"], grid=3, block=32,
                            shared_bytes=128)
    x = np.arange(96, dtype=np.float32).reshape(3, 32)
    image = compiled(lower(te.create_schedule(b), [a, b], "warps"), target)
    assert "shfl" in image.ptx
    memory = DeviceMemory()
    source, result = memory.allocate(x.nbytes), memory.allocate(4)
    memory.view(source, x.nbytes)[:] = x.reshape(-1).view(np.uint8)
    memory.view(result, 4)[:] = 0
    (kernel,) = image.launches
    values = [(source, result)[n] if kind == "parameter" else n for kind, n in kernel.arguments]
    launch(load_ptx(image.ptx), kernel.entry, kernel.grid, kernel.block, values, memory,
           shared_bytes=kernel.shared_bytes)
    assert memory.view(result, 4).view(np.float32)[0] == x.sum()


@BY_ROUTE
def test_a_device_function_is_the_body_of_an_operator(target):
    a = te.placeholder((70,), name="A")
    b = te.compute((70,), lambda i: a[i] * 2.0, name="B")
    (c,) = te.python_extern([(70,)], [b], running_sums, ["float32"], scalars=[1.5])
    func = lower(te.create_schedule(c), [a, c], "sums")
    x = np.linspace(-1, 1, 70, dtype=np.float32)
    out = np.zeros_like(x)
    run_emulated(func, [x], [out], target=target)
    np.testing.assert_allclose(out, 1.5 + np.cumsum(np.exp(-abs(2 * x.astype("f8")))), rtol=1e-6)


@pytest.fixture
def emulated():
    with weft.config(cuda="emulate"):
        yield


@pytest.mark.usefixtures("emulated")
def test_the_operator_is_like_any_other(tmp_path):
    x = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32)
    module = weft.compile(weft.parse(SOURCE.format("n, ")), target="cuda")
    assert {step.op: step.device.kind for step in module.manifest.steps}["test.squared"] == "cuda"
    assert ".entry square_" in module.as_text("ptx")
    expected = np.tanh(x * x)
    batched = weft.compile(weft.vmap(weft.parse(SOURCE.format("")), axis_size=4),
                           target="cuda")
    slopes = weft.compile(weft.grad(weft.parse(SOURCE.format("4, ")), cotangent="ones"),
                          target="cuda")
    module.export(tmp_path / "net.weft")
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_allclose(module(x), expected, rtol=1e-6)
    np.testing.assert_allclose(batched(x), expected, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(slopes(x)).reshape(x.shape),
                               2 * x * (1 - expected**2), rtol=1e-4, atol=1e-6)
    program = """import sys, numpy as np, weft
    y = weft.load(sys.argv[1] + "/net.weft")(np.load(sys.argv[1] + "/x.npy"))
    np.save(sys.argv[1] + "/y.npy", y); print("numba" in sys.modules)"""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(line.strip() for line in program.splitlines()), tmp_path],
        capture_output=True, text=True, check=False, env={**os.environ, "WEFT_CUDA": "emulate"})
    assert done.stdout == "False\n", done.stderr
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-6)


@pytest.mark.usefixtures("emulated")
def test_opcheck_runs_the_kernel():
    report = weft.opcheck("test.squared", target="cuda")
    assert "test.squared.cuda.ptx" in report.implementations


@pytest.mark.parametrize(("options", "message", "got"), [
    ({"text": "ret;"}, "the PTX text has no kernel", "ret;"),
    ({"entry": "squared"}, "has no kernel squared", "did you mean 'square'"),
    ({"text": SQUARE_PTX + SQUARE_PTX.replace(".entry square", ".entry other")},
     "several kernels", "square, other"),
    ({"scalars": (), "order": None}, "another number of arguments", "3: u64, u64, u32"),
    ({"scalars": [1.5]}, "cannot take argument 2", "a .u32 parameter"),
    ({"order": (1, 2, 0)}, "cannot take argument 2", "address of a float32 tensor"),
    ({"order": (0, 1, 3)}, "names an unknown one", "below 3"),
    ({"grid": ()}, "one to three sizes", "grid"),
    ({"block": te.var("n")}, "not a constant", "n"),
    ({"scalars": ["x"]}, "a number or a size", "x"),
], ids=["no kernel", "missing entry", "two entries", "too few", "float for integer", "address",
        "order", "grid", "block", "text"])
def test_arguments_that_do_not_fit_are_refused(options, message, got):
    with pytest.raises(OperatorError, match=message) as caught:
        by_ptx(**options)
    assert got in str(caught.value)


LATER = SQUARE_PTX.replace("sm_80", "sm_90a")
WRONG = SQUARE_PTX.replace("mul.f32", "mul.f23")


@pytest.mark.parametrize(("text", "arch", "error", "message", "got"), [
    (LATER, "sm_80", CodegenError, "was compiled for sm_90a", "-arch=sm_90a"),
    (LATER, "sm_90", CodegenError, "was compiled for sm_90a", "sm_90"),
    (SQUARE_PTX.replace(".target sm_80", ""), "sm_80", OperatorError, "has no header", ".target"),
    pytest.param(WRONG, "sm_80", OperatorError, "ptxas rejects the PTX", "mul.f23",
                 marks=needs_ptxas),
], ids=["later", "specific", "header", "instruction"])
def test_ptx_that_the_target_cannot_run_is_refused(text, arch, error, message, got):
    with pytest.raises(error, match=message) as caught:
        compiled(function_of(by_ptx(text)), CudaTarget(arch))
    assert got in str(caught.value)
    assert "square" in str(caught.value.where)


@pytest.mark.parametrize(("text", "warns"), [(LATER, True), pytest.param(
    WRONG, False, marks=needs_ptxas)], ids=["later", "wrong"])
def test_the_host_takes_over_for_another_architecture_and_not_for_a_wrong_kernel(
        monkeypatch, text, warns):
    monkeypatch.setattr(foreign_operator, "SQUARE_PTX", text)
    model = weft.parse(SOURCE.format("5, "))
    if warns:
        with pytest.warns(weft.FallbackWarning, match=r"squared runs on the host(.|\n)*sm_90a"):
            weft.compile(model, target="cuda")
    else:
        with pytest.raises(OperatorError, match=r"ptxas rejects"):
            weft.compile(model, target="cuda")


@pytest.mark.usefixtures("emulated")
def test_wrong_arguments_are_an_error_at_the_line_of_the_strategy(monkeypatch):
    text = SQUARE_PTX.replace(".param .u32 square_n)", ".param .u32 square_n, .param .u32 m)")
    monkeypatch.setattr(foreign_operator, "SQUARE_PTX", text)
    with pytest.raises(OperatorError, match="another number of arguments") as caught:
        weft.compile(weft.parse(SOURCE.format("6, ")), target="cuda")
    assert "foreign_operator.py" in str(caught.value.where)
    assert "in the compute of test.squared" in str(caught.value)


def test_the_limits_of_a_block_hold_for_foreign_kernels():
    with pytest.raises(CodegenError, match="2048 threads in a block"):
        compiled(function_of(by_ptx(block=2048)))


def test_a_cpu_refuses_the_kernel():
    with pytest.raises(LoweringError, match=r"kernel square does not run on .* 'cpu'"):
        weft.codegen.backend_of(weft.target.Target.of("cpu")).lower(function_of(by_ptx()))


@BY_ROUTE
def test_two_texts_in_one_program_keep_their_kernels_apart(target):
    a = te.placeholder((96,), name="A")
    other = SQUARE_PTX.replace("mul.f32 %f1, %f1, %f1", "add.f32 %f1, %f1, %f1")
    options = {"grid": 2, "block": 64, "scalars": [96], "order": (1, 0, 2)}
    (b,) = te.device_kernel([(96,)], [a], SQUARE_PTX, ["float32"], **options)
    (c,) = te.device_kernel([(96,)], [b], other, ["float32"], **options)
    x, out = np.arange(96, dtype=np.float32), np.zeros(96, np.float32)
    run_emulated(lower(te.create_schedule(c), [a, c], "two"), [x], [out], target=target)
    np.testing.assert_array_equal(out, 2 * x * x)
    texts = [text.replace(".visible", ".shared .align 4 .b8 tile[64];\n.visible")
             for text in (SQUARE_PTX, other)]
    (b,) = te.device_kernel([(96,)], [a], texts[0], ["float32"], **options)
    (c,) = te.device_kernel([(96,)], [b], texts[1], ["float32"], **options)
    with pytest.raises(OperatorError, match="two PTX texts of one program define tile"):
        compiled(lower(te.create_schedule(c), [a, c], "two"))


@cuda.jit
def one_argument(x):
    x[0] = 1


@cuda.jit
def writes_input(x, y, scale, count):
    x[0, 0] = 1


@cuda.jit
def unknown_method(x, y, scale, count):
    y[0, 0] = x[0, 0].rounded(2)


@cuda.jit(link=["other.cu"])
def linked(x, y, scale, count):
    y[0, 0] = x[0, 0]


@cuda.jit(device=True)
def raising(x, y, start):
    if x[0] < 0:
        raise ValueError("negative")


@pytest.mark.parametrize(("kernel", "message"), [
    (one_argument, "another number of arguments"),
    (running_sums, "is a device function, not a kernel"),
    (writes_input, "inputs cannot be written"),
    (unknown_method, "Unknown attribute 'rounded'"),
    (linked, "links files"),
], ids=["number", "device function", "input", "method", "links"])
def test_python_kernels_that_numba_refuses_are_errors_at_their_line(kernel, message):
    with pytest.raises(OperatorError, match=message) as caught:
        compiled(rows_then_one(kernel))
    assert "test_foreign_kernels.py" in str(caught.value.where)


def test_device_functions_cannot_raise():
    a = te.placeholder((4,), name="A")
    (b,) = te.python_extern([(4,)], [a], raising, ["float32"], scalars=[1.0])
    with pytest.raises(CodegenError, match="raising may raise an exception"):
        compiled(function_of(b))


def test_without_numba_cuda_python_kernels_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(MissingToolError, match="compiles Python for GPUs") as caught:
        compiled(rows_then_one())
    assert "pip install weft[cuda]" in str(caught.value)


def test_numba_compiles_called_functions_without_a_device():
    local = numba_cuda("cudadrv.devices", "is tested")._runtime._tls
    compiled(rows_then_one())
    assert getattr(local, "attached_context", None) is None


def test_parameters_of_ptx_are_read():
    text = """// .entry no(.param .u8 x)
    .visible .entry a ( .param .u64 .ptr .global .align 16 p, /* n */ .param .f32 q,
                        .param .align 8 .b8 s[24] ) { ret; }
    .entry b() { ret; }  .entry c { ret; }"""
    assert ptx_entries(text) == {"a": ("u64", "f32", "bytes"), "b": (), "c": ()}
