"""Fused groups with symbolic sizes: one kernel gives the values of the reference at every size."""

from __future__ import annotations

import ctypes
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.strategy.kernels import WIDE_CPU, random_arguments
from weft.codegen import backend_of
from weft.ir.expr import Function
from weft.ir.module import IRModule
from weft.ir.symbol import size_of_dim
from weft.ir.text.parser import parse_expr
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.runtime.library import NativeLibrary
from weft.runtime.sizes import evaluate
from weft.strategy import LoweredKernel, lower_function
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.target import CpuTarget
from weft.tir.expr import BufferLoad, Ramp, int_value
from weft.tir.parser import parse_func
from weft.tir.printer import as_text
from weft.tir.stmt import BufferStore, For, ForKind
from weft.tir.visitor import all_exprs, post_order_stmts
from weft.transform.analysis.reference import evaluate as evaluate_reference

SIZES = st.sampled_from([0, 1, 2, 3, 7, 15, 16, 17, 31, 33])
GROUPS = {
    "broadcast mask": "fn (%x: Tensor[(b, 3, n, n), float32], %m: Tensor[(b, 1, 1, n), float32]) "
                      "{ nn.relu(add(%x, %m)) }",
    "flat chain": "fn (%x: Tensor[(b, 5, n), float32]) { multiply(%x, sigmoid(%x)) }",
    "transpose": "fn (%x: Tensor[(b, n, 20), float32]) { transpose(exp(%x), axes=[0, 2, 1]) }",
    "transpose to rows of 20": "fn (%x: Tensor[(b, 20, n), float32], %y: Tensor[(b, n, 20), "
                               "float32]) { add(transpose(%x, axes=[0, 2, 1]), %y) }",
    "transpose of squares": "fn (%x: Tensor[(b, n, n), float32]) { transpose(%x, axes=[0, 2, 1]) }",
    "transpose of bytes": "fn (%x: Tensor[(b, n, n), float32]) "
                          '{ cast(transpose(%x, axes=[0, 2, 1]), dtype="int8") }',
    "softmax": "fn (%x: Tensor[(b, 3, n), float32]) { nn.softmax(multiply(%x, 2f)) }",
    "softmax of columns": "fn (%x: Tensor[(b, 20, n), float32]) { nn.softmax(%x, axis=1) }",
    "layer norm": "fn (%x: Tensor[(b, 3, n), float32], %g: Tensor[(n,), float32], "
                  "%s: Tensor[(n,), float32]) { nn.layer_norm(%x, %g, %s) }",
    "norm of n rows": "fn (%x: Tensor[(b, n, 40), float32], %g: Tensor[(40,), float32]) "
                      "{ nn.rms_norm(%x, %g) }",
    "sum of columns": "fn (%x: Tensor[(b, n, 20), float32]) { sum(abs(%x), axis=[1]) }",
    "sum of everything": "fn (%x: Tensor[(b, n, 20), float32]) { sum(%x) }",
    "argmax": "fn (%x: Tensor[(b, 3, n), float32]) { argmax(%x, axis=[2]) }",
    "pad": "fn (%x: Tensor[(b, 3, n, n), float32]) "
           "{ nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0], [1, 2], [3, 1]]) }",
    "pad of many rows": "fn (%x: Tensor[(b, 16, n), float32]) "
                        "{ nn.pad(%x, 1f, pad_width=[[0, 0], [0, 0], [17, 2]]) }",
    "stack": "fn (%x: Tensor[(b, n), float32], %y: Tensor[(b, n), float32]) "
             "{ stack((%x, %y), axis=1) }",
    "interleaved": "fn (%x: Tensor[(b, n), float32], %y: Tensor[(b, n), float32]) "
                   "{ stack((%x, %y, %x), axis=2) }",
    "upsampling": "fn (%x: Tensor[(b, 2, n, n), float32]) "
                  "{ nn.upsampling(%x, scale_h=3.0, scale_w=2.0) }",
    "every third": "fn (%x: Tensor[(b, 5, n), float32]) "
                   "{ strided_slice(%x, begin=[1], end=[100], strides=[3], axes=[2]) }",
    "small pool": "fn (%x: Tensor[(b, 9, n, n), float32]) "
                  "{ nn.max_pool2d(%x, pool_size=[2, 2], strides=[2, 2]) }",
    "pool": "fn (%x: Tensor[(b, 2, n, n), float32]) { nn.max_pool2d(%x, pool_size=[3, 3], "
            "strides=[2, 2], padding=[1, 1, 1, 1]) }",
}


def primitive(text: str, sizes: dict[str, int] | None = None) -> Function:
    for name, size in (sizes or {}).items():
        for before, after in (("(", ","), (" ", ","), (" ", ")")):
            text = text.replace(f"{before}{name}{after}", f"{before}{size}{after}")
    made = parse_expr(text)
    assert isinstance(made, Function)
    function = infer_expr(Function(made.params, made.body, attrs={"primitive": True}))
    assert isinstance(function, Function)
    return function


@functools.cache
def compiled(name: str) -> tuple[LoweredKernel, NativeLibrary, Function]:
    function, target = primitive(GROUPS[name]), CpuTarget.host()
    kernel, backend = lower_function(function, target), backend_of(target)
    code = backend.build_kernel(kernel.func, target)
    library = backend.load([code, *backend.support_objects(target)], target)
    assert isinstance(library, NativeLibrary)
    return kernel, library, function


def run(name: str, arrays: list[np.ndarray], sizes: dict[str, int]) -> np.ndarray:
    kernel, library, function = compiled(name)
    type_ = function.body.checked_type
    assert isinstance(type_, TensorType)
    shape = tuple(evaluate(size_of_dim(d), sizes) for d in type_.shape)
    result = np.full(shape, 77, type_.dtype.numpy)
    scratch = np.zeros(evaluate(kernel.func.attrs.get("workspace_bytes", 0), sizes) + 64, np.uint8)
    pointers = [a.ctypes.data for a in (*arrays, result)]
    values = [evaluate(size, sizes) for size in kernel.sizes]
    start = -(-scratch.ctypes.data // 64) * 64
    kinds = [ctypes.c_void_p] * len(pointers) + [ctypes.c_int64] * len(values) + [ctypes.c_void_p]
    function_type = ctypes.CFUNCTYPE(None, *kinds)
    function_type(library.address(kernel.func.name))(*pointers, *values, start)
    return result


@pytest.mark.sample(0.3)
@pytest.mark.slow
@pytest.mark.parametrize("name", GROUPS)
@settings(max_examples=10, deadline=None)
@given(b=st.integers(0, 3), n=SIZES)
def test_one_kernel_for_all_sizes(name: str, b: int, n: int) -> None:
    sizes = {"b": b, "n": n}
    if name in ("argmax", "pool", "small pool", "layer norm") and n < 2:
        return  # refused: an empty row, and an image smaller than the window
    if name == "upsampling" and not n:
        return  # refused at a fixed size
    fixed = primitive(GROUPS[name], sizes)
    arrays = random_arguments(fixed)
    expected = evaluate_reference(IRModule.from_expr(fixed), arrays)
    np.testing.assert_allclose(run(name, arrays, sizes), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["flat chain", "softmax", "norm of n rows", "sum of columns"])
def test_symbolic_groups_are_vectors_and_parallel(name: str) -> None:
    func = lower_function(primitive(GROUPS[name]), WIDE_CPU).func
    loads = [e for e in all_exprs(func.body) if isinstance(e, BufferLoad)]
    assert max(e.dtype.lanes for e in loads) >= 16
    kinds = [n.kind for n in post_order_stmts(func.body) if isinstance(n, For)]
    assert ForKind.PARALLEL in kinds


@pytest.mark.parametrize("name", [name for name in GROUPS if name.startswith("transpose")])
def test_symbolic_transposes_load_no_single_elements(name: str) -> None:
    func = lower_function(primitive(GROUPS[name]), WIDE_CPU).func
    loads = [e for e in all_exprs(func.body) if isinstance(e, BufferLoad)]
    assert all(isinstance(e.indices[0], Ramp) and int_value(e.indices[0].stride) == 1
               for e in loads), loads


@pytest.mark.parametrize("name", ["softmax", "layer norm"])
def test_the_end_of_a_row_does_not_gather(name: str) -> None:
    text = as_text(lower_function(primitive(GROUPS[name]), WIDE_CPU).func)
    assert " if ramp(" in text, "the end of a row is masked"
    assert "[broadcast(" not in text, "one element for all lanes is a scalar load"


def test_scratch_rows_are_stored_without_masks() -> None:
    func = lower_function(primitive(GROUPS["softmax"]), WIDE_CPU).func
    stores = [n for n in post_order_stmts(func.body)
              if isinstance(n, BufferStore) and n.buffer.name == "softmax_exp"]
    assert stores
    assert all(n.predicate is None for n in stores)


def test_each_call_decides_whether_it_deserves_threads() -> None:
    text = as_text(lower_function(primitive(GROUPS["flat chain"]), WIDE_CPU).func)
    assert f"attr('parallel_if', b * n * 5 >= {parallel_threshold(WIDE_CPU)})" in text
    assert as_text(parse_func(text)) == text
    large = GROUPS["flat chain"].replace("(b, 5, n)", "(2, 1000, n{1000..})")
    assert "parallel_if" not in as_text(lower_function(primitive(large), WIDE_CPU).func)


def test_a_bounded_group_stays_serial() -> None:
    text = GROUPS["flat chain"].replace("(b, 5, n)", "(2, 5, n{1..16})")
    func = lower_function(primitive(text), WIDE_CPU).func
    kinds = [n.kind for n in post_order_stmts(func.body) if isinstance(n, For)]
    assert ForKind.PARALLEL not in kinds
