"""ptxas, fat binaries, libnvvm and what they say about kernels; skipped where they are absent."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.unit.cuda.codegen.emulated import compiled, run_emulated
from tests.unit.tir.gpu.gpu_programs import row_sums, tiled_matmul
from weft import te
from weft.codegen.cuda import toolkit
from weft.codegen.cuda.nvvm import compile_nvvm
from weft.codegen.cuda.nvvm_dialect import NVVM_LAYOUT
from weft.codegen.cuda.ptxas import assemble, parse_resources
from weft.codegen.cuda.static_report import instruction_mix, kernel_facts
from weft.codegen.cuda.toolkit import find_library, find_program, libdevice, numba_cuda
from weft.support.errors import CodegenError, InternalError, MissingToolError
from weft.target import CudaTarget
from weft.te.lower import lower
from weft.tir.func import PrimFunc

needs_ptxas = pytest.mark.skipif(find_program("ptxas") is None, reason="ptxas is not installed")
needs_nvvm = pytest.mark.skipif(find_library("nvvm") is None,
                                reason="libnvvm is not installed")

_USES_LIBDEVICE = f"""
target triple = "nvptx64-nvidia-cuda"
target datalayout = "{NVVM_LAYOUT}"
declare float @__nv_expf(float)
define void @f(float* %x) {{
  %a = load float, float* %x
  %b = call float @__nv_expf(float %a)
  store float %b, float* %x
  ret void
}}
!nvvmir.version = !{{!0}}
!0 = !{{i32 2, i32 0}}
"""


def vectors_and_extrema() -> PrimFunc:
    """Vector loads and stores, extrema of floats and integers, rounding, float16 and bfloat16."""
    n = 64
    a = te.placeholder((n,), name="A")
    b = te.placeholder((n,), "int32", name="B")
    half, brain = (te.placeholder((n,), t, name=t) for t in ("float16", "bfloat16"))
    c = te.compute((n,), lambda i: te.maximum(te.minimum(a[i], 1.5), -a[i] * te.floor(a[i]))
                   + te.maximum(b[i], b[i] // 3).astype("float32")
                   + half[i].astype("float32") * brain[i].astype("float32"), name="C")
    s = te.create_schedule(c)
    thread, lane = s[c].split(s[c].axis[0], factor=4)
    s[c].bind(thread, "threadIdx.x")
    s[c].vectorize(lane)
    return lower(s, [a, b, half, brain, c], "mixed")


def inputs_of(func: PrimFunc) -> tuple[list[np.ndarray], list[np.ndarray]]:
    generator = np.random.default_rng(0)
    arrays = [(generator.standard_normal(p.static_shape) * 3).astype(p.dtype.numpy)
              for p in func.params]
    return arrays[:-1], [np.zeros_like(arrays[-1])]


PROGRAMS = [tiled_matmul(), row_sums(3, 300, 64), row_sums(2, 90, 48), vectors_and_extrema()]


@needs_nvvm
@pytest.mark.parametrize("func", PROGRAMS, ids=lambda f: f.name)
def test_both_compilers_agree_bit_for_bit(func: PrimFunc):
    results = []
    for codegen in ("nvptx", "nvvm"):
        inputs, outputs = inputs_of(func)
        run_emulated(func, inputs, outputs, target=CudaTarget(codegen=codegen))
        results.append(outputs[0])
    np.testing.assert_array_equal(*results)


@needs_nvvm
def test_libnvvm_says_why_it_rejects_a_module():
    with pytest.raises(InternalError, match="libnvvm rejects generated code") as caught:
        compile_nvvm(["define void @f() { ret i32 0 }"], CudaTarget())
    assert "parse" in str(caught.value)


@needs_nvvm
def test_libdevice_is_linked_where_a_module_calls_it():
    ptx = compile_nvvm([_USES_LIBDEVICE], CudaTarget("sm_90"))
    assert ".target sm_90" in ptx
    assert "call" not in ptx
    assert ptx.startswith(".version")


@needs_nvvm
def test_libdevice_is_found_beside_libnvvm(monkeypatch):
    found = libdevice()
    monkeypatch.setattr(toolkit, "_pathfinder", lambda: _NoBitcode)
    libdevice.cache_clear()
    assert libdevice() == found
    libdevice.cache_clear()


class _NoBitcode:
    """A search that finds no bitcode."""

    @staticmethod
    def locate_bitcode_lib(name):
        raise RuntimeError(name)


@pytest.mark.parametrize(("module", "name", "value", "got"), [
    ("numba_cuda", "__version__", "0.9.1", "0.9.1"),
    ("numba.cuda", "implementation", "Built-in", "Built-in")], ids=["old", "built-in"])
def test_a_numba_cuda_that_is_too_old_is_refused(monkeypatch, module, name, value, got):
    pytest.importorskip("numba_cuda")
    numba_cuda("cudadrv.nvvm", "binds libnvvm")
    monkeypatch.setattr(f"{module}.{name}", value)
    with pytest.raises(MissingToolError, match=r"numba-cuda.*is too old") as at:
        numba_cuda("cudadrv.nvvm", "binds libnvvm")
    assert got in str(at.value)
    assert "pip install weft[cuda]" in str(at.value)


@needs_nvvm
def test_without_numba_cuda_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(MissingToolError, match=r"cannot be imported(.|\n)*pip install weft"):
        compile_nvvm([_USES_LIBDEVICE], CudaTarget())


@needs_ptxas
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a", "sm_100", "sm_120"])
@pytest.mark.parametrize("func", PROGRAMS, ids=lambda f: f.name)
def test_kernels_assemble_without_spills(func: PrimFunc, arch: str):
    image = compiled(func, CudaTarget(arch))
    result = assemble(image.ptx, arch)
    assert result.cubin.startswith(b"\x7fELF")
    for launch in image.launches:
        used = result.resources[launch.entry]
        assert 0 < used.registers <= 64
        assert used.spill_stores == used.spill_loads == 0


@needs_ptxas
def test_a_vector_of_a_thread_is_one_access_of_128_bits():
    (facts,) = kernel_facts(compiled(vectors_and_extrema()))
    assert facts.instructions["ld.global 128"] == 2
    assert facts.instructions["st.global 128"] == 1
    assert facts.threads == 16


@needs_ptxas
def test_rejected_ptx_names_the_line():
    ptx = compiled(tiled_matmul()).ptx.replace("bar.sync", "bar.sink")
    with pytest.raises(CodegenError, match="Unknown modifier") as caught:
        assemble(ptx, "sm_80")
    assert caught.value.where.startswith("matmul, PTX line")
    assert "bar.sink" in str(caught.value.got)


def test_the_report_of_the_assembler():
    report = """ptxas info    : Compiling entry function 'f' for 'sm_80'
ptxas info    : Function properties for f
    112 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 28 registers, used 1 barriers, 256 bytes smem, 376 bytes cmem[0]"""
    used = parse_resources(report)["f"]
    assert (used.registers, used.stack_bytes, used.spill_stores, used.spill_loads, used.barriers,
            used.shared_bytes) == (28, 112, 8, 16, 1, 256)


def test_instructions_are_counted_by_kind():
    ((entry, kinds),) = instruction_mix(compiled(row_sums(3, 300, 64)).ptx)
    assert entry == "row_sums"
    assert kinds["shuffle"] == 6
    assert kinds["barrier"] == 1
    assert kinds["ld.global 32"] == 1


@needs_ptxas
@pytest.mark.parametrize("n", [256, 250, 255])
def test_guarded_vectors_stay_wide_accesses(n: int):
    a = te.placeholder((n,), name="A")
    c = te.compute((n,), lambda i: a[i] + 1.0, name="C")
    s = te.create_schedule(c)
    thread, lane = s[c].split(s[c].axis[0], factor=4)
    block, thread = s[c].split(thread, factor=32)
    s[c].bind(block, "blockIdx.x")
    s[c].bind(thread, "threadIdx.x")
    s[c].vectorize(lane)
    func = lower(s, [a, c], "guarded")
    (facts,) = kernel_facts(compiled(func))
    assert facts.instructions["ld.global 128"] == facts.instructions["st.global 128"] == 1
    x, out = np.arange(n, dtype=np.float32), np.empty(n, np.float32)
    run_emulated(func, [x], [out])
    np.testing.assert_array_equal(out, x + 1)
