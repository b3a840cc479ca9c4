"""Networks of vectors and selections order as the references do, for every width of vectors."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.ir import TensorType, float32
from weft.op.transform.order import _sort_reference, _topk_reference
from weft.strategy.cpu.sort.strategy import line_plan
from weft.target import CpuTarget

HOST = CpuTarget.host()
# Of each width of vectors that this CPU has.
TARGETS = [f"llvm -mcpu={cpu}" for bits, cpu in (
    (128, "nehalem"), (256, "haswell"), (512, "skylake-avx512"))
    if HOST.vector_bits >= bits] if HOST.arch == "x86_64" else ["cpu"]
# Lines side by side, in columns, and alone, with and without a rest of each kind.
CASES = (
    ((33, 100), "float32", 1, True), ((2, 3, 71), "float16", 2, False),
    ((70, 37), "float32", 0, True), ((2, 65, 3, 16), "int16", 1, False),
    ((1, 3000), "float32", 1, False), ((1025,), "float64", 0, True), ((600,), "uint32", 0, False),
    ((9, 80), "uint64", 1, True), ((17_000,), "int8", 0, True), ((40_000,), "float32", 0, True),
)


def numbers(shape: tuple[int, ...], dtype: str, *, odd: float = 0.0) -> np.ndarray:
    """Random numbers; of floats the fraction ``odd`` are zeros, NaNs and infinities by sign."""
    rng = np.random.default_rng(sum(shape))
    if "int" in dtype:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    specials = np.array([0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf], dtype)
    chosen = rng.choice(specials, shape)
    return np.where(rng.random(shape) < odd, chosen, rng.standard_normal(shape).astype(dtype))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "dtype", "axis", "is_ascend"), CASES, ids=str)
@pytest.mark.sample(0.3)
def test_sorted_lines(target: str, shape: tuple[int, ...], dtype: str, axis: int,
                      is_ascend: bool) -> None:
    size = f"({shape[0]},)" if len(shape) == 1 else str(shape)
    module = weft.compile(weft.parse(
        f"def @main(%x: Tensor[{size}, {dtype}]) "
        f"{{ sort(%x, axis={axis}, is_ascend={is_ascend}) }}"), target=target)
    for odd in (0.0, 0.5) if "float" in dtype else (0.0,):
        x = numbers(shape, dtype, odd=odd)
        expected, bits = _sort_reference(x, axis, is_ascend), f"u{x.itemsize}"
        np.testing.assert_array_equal(module(x).view(bits), expected.view(bits))


@pytest.mark.parametrize(("dims", "axis", "shapes"), [
    ("n, 100", 1, [(33, 100), (1, 100), (0, 100)]),
    ("n, 70, 37", 1, [(2, 70, 37), (0, 70, 37)])], ids=["rows", "columns"])
def test_any_number_of_lines(dims: str, axis: int, shapes: list[tuple[int, ...]]) -> None:
    module = weft.compile(weft.parse(
        f"def @main(%x: Tensor[({dims}), float32]) {{ sort(%x, axis={axis}) }}"),
        target=TARGETS[-1])
    assert [step.implementation for step in module.manifest.steps] == ["sort.cpu.network"]
    for shape in shapes:
        x = numbers(shape, "float32", odd=0.2)
        expected = _sort_reference(x, axis, True)
        np.testing.assert_array_equal(module(x).view("u4"), expected.view("u4"))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("shape", "dtype", "is_ascend", "k"), [
    ((3, 700), "float32", False, 10), ((5000,), "float16", True, 33),
    ((2, 2049), "int16", False, 1), ((600,), "uint32", True, 5)], ids=str)
@pytest.mark.parametrize("odd", [0.0, 0.5, 1.0])
@pytest.mark.sample(0.3)
def test_selected_elements(target: str, shape: tuple[int, ...], dtype: str, is_ascend: bool, k: int,
                           odd: float) -> None:
    """Of zeros by sign and of NaNs, and of few different numbers, the first positions count."""
    size = f"({shape[0]},)" if len(shape) == 1 else str(shape)
    module = weft.compile(weft.parse(
        f"def @main(%x: Tensor[{size}, {dtype}]) "
        f"{{ topk(%x, k={k}, is_ascend={is_ascend}) }}"), target=target)
    x = numbers(shape, dtype, odd=odd) if "float" in dtype else (
        numbers(shape, dtype) % np.array(7 if odd else 997, dtype))
    for found, expected in zip(module(x), _topk_reference(x, -1, is_ascend, k=k), strict=True):
        bits = f"u{expected.itemsize}"
        np.testing.assert_array_equal(found.view(bits), expected.view(bits))


@pytest.mark.parametrize(("target", "has_vectors"), [
    ("llvm -mtriple=wasm32-unknown-unknown -mcpu=simd", True),
    ("llvm -mtriple=wasm32-unknown-unknown -mcpu=generic", False),
    ("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic", False)])
def test_networks_need_vectors(target: str, has_vectors: bool) -> None:
    plan = line_plan(TensorType((64, 1000), float32), 1, CpuTarget.of(target))
    assert (plan is not None) == has_vectors
