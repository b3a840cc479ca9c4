"""Kernels that both compilers of LLVM IR print, run under emulation and compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda.codegen.emulated import SM80, compiled, run_emulated
from tests.unit.tir.gpu.gpu_programs import row_sums, tiled_matmul
from weft import te
from weft.codegen import backend_of
from weft.codegen.cuda.build import build_kernel_object
from weft.te.lower import lower
from weft.tir.printer import as_text

RNG = np.random.default_rng(0)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_elementwise():
    a, b = te.placeholder((70, 9), name="A"), te.placeholder((70, 9), name="B")
    c = te.compute((70, 9), lambda i, j: a[i, j] * 2.0 + te.tanh(b[i, j]), name="C")
    func = lower(te.create_schedule(c), [a, b, c], "f")
    x, y, out = numbers(70, 9), numbers(70, 9), np.empty((70, 9), np.float32)
    run_emulated(func, [x, y], [out])
    np.testing.assert_allclose(out, x * 2 + np.tanh(y), rtol=1e-6, atol=1e-6)


def test_tiled_matmul():
    x, y, out = numbers(24, 12), numbers(12, 20), np.empty((24, 20), np.float32)
    run_emulated(tiled_matmul(), [x, y], [out])
    np.testing.assert_allclose(out, x @ y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 8, 32, 64, 96, 256, 7, 48, 50])
def test_sums_over_threads(threads: int):
    x, out = numbers(3, 300), np.empty(3, np.float32)
    run_emulated(row_sums(3, 300, threads), [x], [out])
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-5, atol=1e-5)


def test_several_launches_with_a_workspace():
    a = te.placeholder((30, 17), name="A")
    k = te.reduce_axis(17, "k")
    total = te.compute((30,), lambda i: te.sum(a[i, k], axis=k), name="total")
    c = te.compute((30, 17), lambda i, j: a[i, j] - total[i], name="C")
    func = lower(te.create_schedule(c), [a, c], "f")
    x, out = numbers(30, 17), np.empty((30, 17), np.float32)
    image = run_emulated(func, [x], [out])
    assert (len(image.launches), image.workspace_bytes) == (2, 128)
    np.testing.assert_allclose(out, x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 100, 300])
def test_a_symbolic_size_is_an_argument_and_gives_the_grid(n: int):
    size = te.var("n")
    a = te.placeholder((size,), name="A")
    c = te.compute((size,), lambda i: a[i] * 3.0, name="C")
    func = lower(te.create_schedule(c), [a, c], "f")
    x, out = numbers(n), np.empty(n, np.float32)
    run_emulated(func, [x], [out], {"n": n})
    np.testing.assert_allclose(out, x * 3)


def test_argmax_over_threads():
    a = te.placeholder((4, 200), name="A")
    k = te.reduce_axis(200, "k")
    places, values = te.compute((4,), lambda i: te.argmax((k.var, a[i, k]), axis=k), name="B")
    s = te.create_schedule([places, values])
    _, lane = s[places].split(k, factor=64)
    s[places].bind(s[places].axis[0], "blockIdx.x")
    s[places].bind(lane, "threadIdx.x")
    func = lower(s, [a, places, values], "f")
    x = numbers(4, 200)
    found = [np.empty(4, np.int64), np.empty(4, np.float32)]
    run_emulated(func, [x], found)
    np.testing.assert_array_equal(found[0], x.argmax(1))
    np.testing.assert_array_equal(found[1], x.max(1))


def test_equal_functions_give_equal_bytes():
    assert compiled(tiled_matmul()).to_bytes() == compiled(tiled_matmul()).to_bytes()


def test_instructions_name_the_lines_of_the_loop_program():
    func = backend_of(SM80).lower(row_sums(3, 300, 64))
    ptx = build_kernel_object(func, SM80).ptx
    assert '.file\t1 "row_sums.tir"' in ptx.partition(".entry")[0]
    load = ptx.partition("ld.global")[0].rpartition(".loc\t1 ")[2]
    assert "A[" in as_text(func).splitlines()[int(load.split()[0]) - 1]
