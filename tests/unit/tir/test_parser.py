"""The text of loop programs reads back as the program that was printed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from tests.unit.codegen.test_random_expressions import build, trees
from tests.unit.op.harness import make_call, make_compute, make_inputs
from tests.unit.strategy.kernels import WIDE_CPU, primitive
from weft import op, te
from weft.ir.dynamic import needs_values
from weft.ir.expr import var
from weft.ir.op import OPS
from weft.strategy import schedule_function
from weft.support.errors import ParseError
from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate
from weft.tir.expr import BufferLoad, Var, const
from weft.tir.func import PrimFunc
from weft.tir.parser import parse_func
from weft.tir.stmt import BufferStore, For, ForKind
from weft.tir.transform.pipeline import lower_prim_func

X = var("x", (3, 17, 20))
IMAGE = var("x", (1, 3, 9, 9))
PROGRAMS = {
    "softmax": lambda: primitive([X], op.nn.softmax(X)),
    "gelu": lambda: primitive([X], op.multiply(X, op.erf(X))),
    "argmax": lambda: primitive([X], op.argmax(X, axis=(1,))),
    "transpose": lambda: primitive([X], op.transpose(X, axes=(0, 2, 1))),
    "pool": lambda: primitive([IMAGE], op.nn.max_pool2d(IMAGE, pool_size=(3, 3), padding=(1,) * 4)),
    "matmul": lambda: product("float32", "float32"),
    "bytes": lambda: product("uint8", "int32"),
    "bfloat16": lambda: product("bfloat16", "float32"),
}


def product(dtype: str, out: str):
    a, b = var("a", (5, 12), dtype), var("b", (12, 21), dtype)
    return primitive([a, b], op.nn.matmul(a, b, out_dtype=out))


def zeros(param: Buffer, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 5, param.static_shape).astype(param.dtype.numpy)


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_before_and_after_the_passes(name):
    nest = schedule_function(PROGRAMS[name](), WIDE_CPU).loop_nest()
    for func in (nest, lower_prim_func(nest)):
        again = parse_func(str(func))
        assert str(again) == str(func)
        assert again.attrs.get("num_outputs") == func.attrs.get("num_outputs")
        results = []
        for form in (func, again):
            arrays = [zeros(p, i) for i, p in enumerate(form.params) if isinstance(p, Buffer)]
            evaluate(form, *arrays)
            results.append(arrays[-1])
        np.testing.assert_array_equal(*results)


OPERATORS = [name for name in OPS if not needs_values(OPS.get(name))]


@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator(name):
    operator = OPS.get(name)
    arrays = make_inputs(operator, operator.cases[0])
    placeholders, tensors = make_compute(make_call(operator, operator.cases[0], arrays), arrays)
    func = te.lower(te.create_schedule(tensors), [*placeholders, *tensors], "kernel")
    assert str(parse_func(str(func))) == str(func)


def test_names_of_the_text_form_are_not_names_of_buffers():
    for name in ("exp", "min", "if", "float32", "int8x16", "call_extern"):
        given, made, i = buffer(name, (4,)), buffer(f"{name}_1", (4,)), Var("i")
        value = BufferLoad(given, (i,)) + const(1.0, "float32")
        func = PrimFunc("f", (given, made), For(i, const(0), const(4), ForKind.SERIAL,
                                                BufferStore(made, value, (i,))))
        assert str(func).startswith(f"def f({name}_1: float32[4], {name}_1_1: float32[4]):")
        assert str(parse_func(str(func))) == str(func)


TEXT = """\
def f(a: float32[n, 8], s: bool[8], b: float16[n + 1, 4] strides=[8, 2], n: int64, x: float64):
    # note = some words
    # num_outputs = 1
    t = allocate(float32[16] local)
    attr('key', 'value')
    for i in range(n):  # tag = 3  # word = abc
        for j.inner in vectorized(8):
            if likely(i * 8 + j.inner < n) and not s[j.inner]:
                t[j.inner] = a[i, j.inner if s[j.inner]] + 2.0 * -1.5
            else:
                pass
        for k in threadidx(2, 2 + n, 'threadIdx.x'):
            v = let(w = int32(7), w * w)
            t[ramp(k, 2, 4) if broadcast(True, 4)] = float32x4(broadcast(v, 4))
    u = float16('nan')
    b[0, 0] = u
    prefetch(a[0, 0])
    t[0] = select(x > float64(1e-07), t[1], min(t[2], float32('inf')))
    t[ramp(0, 1, 2)] = shuffle([t[ramp(0, 1, 4)], t[ramp(4, 1, 4)]], [0, 5])
    t[3] = reinterpret[float32](int32(-5))
    t[4] = table_lookup[float32](int32(5), 0.5, 1.5)
    call_extern[handle]('symbol', address_of(t[0]), (n - 1) // 2 % 3 - (1 - n))"""
TEXT = TEXT.replace("threadidx", "thread_binding")


def test_every_form():
    assert str(parse_func(TEXT)) == TEXT


def test_long_shared_subexpressions_are_written_once():
    i = Var("i")
    e = i
    for number in range(60):  # two to the power of 60 leaves
        e = e * (e + const(number))
    func = PrimFunc("f", (out := buffer("out", (1,), "int64"), i), BufferStore(out, e, (const(0),)))
    text = str(func)
    assert len(text) < 200_000
    assert len(text.splitlines()) == 2
    assert str(parse_func(text)) == text
    values = [np.zeros(1, np.int64) for _ in range(2)]
    for made, value in zip((func, parse_func(text)), values, strict=True):
        evaluate(made, value, 3)
    assert values[0] == values[1]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(tree=trees(4))
def test_random_expressions(tree):
    e = build(tree, (Var("i"), Var("j")))
    text = f"def f(out: {e.dtype}[1], i: int64, j: int64):\n    out[0] = {e}"
    func = parse_func(text)
    assert str(func) == text


@pytest.mark.parametrize(("old", "new", "message"), [
    ("a[i,", "missing[i,", "line 9: undefined name: missing"),
    ("2.0 *", "2 *", r"operands of \* have different dtypes"),
    ("range(n):", "around(n):", "unknown kind of loop"),
    ("bool[8]", "bool[8] register", "unknown memory scope"),
    ("likely(", "likelier(", "undefined intrinsic: likelier"),
    ("        for k in", "            for k in", "line 12: empty block"),
    ("pass", "pass pass", "unexpected token at the end of the line"),
    ("2.0 *", "2.0 ? *", "unexpected character"),
    ("def f", "f", "expected 'def'"),
    ("(k, 2, 4)", "(k, 2, k)", "expected a constant integer"),
])
def test_mistakes_name_the_line(old, new, message):
    assert old in TEXT
    with pytest.raises(ParseError, match=message):
        parse_func(TEXT.replace(old, new))


def test_no_text():
    with pytest.raises(ParseError, match="empty"):
        parse_func("\n")
