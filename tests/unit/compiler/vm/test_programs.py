"""Loops, depth, data, references, dynamic shapes and refusals, from program to result."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from tests.unit.compiler.vm.helpers import on_the_machine
from weft import op
from weft.ir.expr import Function, If, Let, RefCreate, RefRead, Var, const, var
from weft.runtime.vm.value import Data
from weft.support.errors import ArtifactError, InvalidInputError, UnsupportedModelError
from weft.transform import evaluate

pytestmark = pytest.mark.usefixtures("own_cache")

LOOP = """
def @loop(%n: int32, %s: Tensor[(64,), float32]) -> Tensor[(64,), float32] {
  if (less(%n, 1)) { %s } else { @loop(subtract(%n, 1), add(%s, 1f)) }
}
def @main(%n: int32) -> Tensor[(64,), float32] { @loop(%n, zeros(shape=(64,), dtype="float32")) }
"""
LOCAL_LOOP = """
def @main(%n: int32, %step: int32) -> int32 {
  let %loop = fn (%k: int32, %s: int32) -> int32 {
    if (less(%k, 1)) { %s } else { %loop(subtract(%k, 1), add(%s, %step)) }
  };
  %loop(%n, 0)
}"""
LISTS = """
import "prelude"
def @numbers(%n: int32) -> List[int32] {
  if (less(%n, 1)) { Nil() } else { Cons(%n, @numbers(subtract(%n, 1))) }
}
"""


def compile_text(text, **knobs):
    return weft.compile(weft.parse(text), **knobs)


@pytest.mark.slow
@pytest.mark.parametrize(("text", "more"), [(LOOP, ()), (LOCAL_LOOP, (np.int32(2),))])
def test_tail_calls_take_constant_space(text, more):
    module = on_the_machine(weft.parse(text))
    result = module(np.int32(100_000), *more)
    assert np.all(result == (200_000 if more else 100_000))
    tracemalloc.start()
    module(np.int32(30_000), *more)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 5_000_000  # frames of 30 000 calls would take three times as much


def test_a_function_of_the_program_is_an_argument():
    """It has no value in a first-order program, which is tried before."""
    module = compile_text("""import "prelude"
    def @main(%a: int32) -> int32 { @compose(fn (%p: int32) -> int32 { %a }, @id)(%a) }""")
    assert module(np.int32(3)) == 3


def test_recursion_is_as_deep_as_memory():
    module = compile_text(LISTS + "def @main(%n: int32) { @sum(@numbers(%n)) }")
    assert module(np.int32(30_000)) == 30_000 * 30_001 // 2


def test_a_long_list_is_given_printed_and_freed():
    module = compile_text(LISTS + "def @main(%n: int32) { @numbers(%n) }")
    assert module.outputs == ()
    value = module(np.int32(20_000))
    assert isinstance(value, Data)
    assert str(value).startswith("Cons(array(20000, dtype=int32), Cons(array(19999")
    count = 0
    while value.name == "Cons":
        value, count = value.fields[1], count + 1
    assert count == 20_000
    assert repr(module(np.int32(1))) == "Cons(array(1, dtype=int32), Nil())"


def test_many_branches_in_a_row_and_in_each_other():
    x = y = var("x", (2,))
    for _ in range(300):
        y = If(op.less(op.sum(y), const(0.0)), op.negative(y), op.subtract(y, const(1.0)))
    inner = x
    for _ in range(300):
        inner = If(op.less(op.sum(x), const(0.0)), op.negative(x), inner)
    fn = Function((x,), op.add(y, inner))
    x = np.float32([3, 4])
    np.testing.assert_allclose(weft.compile(fn)(x), evaluate(fn, [x]), rtol=1e-5)


def test_closures_keep_what_they_captured():
    module = compile_text("""
        def @adder(%a: int32) -> fn(int32) -> int32 { fn (%b: int32) -> int32 { add(%a, %b) } }
        def @main(%x: int32) {
          let %two = @adder(2);
          let %more = @adder(%x);
          (%two(%x), %more(%x), @adder(7)(1))
        }""")
    assert tuple(map(int, module(np.int32(5)))) == (7, 10, 8)


def test_constructors_functions_and_kernels_are_values():
    module = compile_text(LISTS + """
        def @double(%x: int32) -> int32 { multiply(%x, 2) }
        def @main(%n: int32) -> int32 {
          let %pairs = @map(Some, @map(@double, @numbers(%n)));
          match (@hd(%pairs)) { Some(%x) => { %x }, None => { 0 } }
        }""")
    assert module(np.int32(4)) == 8


def test_references_change_in_order():
    mod = weft.parse("""
        def @main(%x: int32) {
          let %r = ref(%x);
          let %before = ref_read(%r);
          let %u = ref_write(%r, add(%before, 1));
          let %bump = fn () { ref_write(%r, multiply(ref_read(%r), 2)) };
          let %v = %bump();
          let %w = %bump();
          (%before, ref_read(%r))
        }""")
    assert tuple(map(int, weft.compile(mod)(np.int32(4)))) == (4, 20)


def test_results_are_the_callers_own():
    module = compile_text("""
        def @main(%c: bool, %x: Tensor[(3,), float32]) {
          let %y = if (%c) { %x } else { const([1, 2, 3], (3,), float32) };
          (%y, %y, %x)
        }""")
    x = np.float32([4, 5, 6])
    for flag in (True, False):
        first, second, third = module(np.bool_(flag), x)
        for array in (first, second, third):
            array[:] = 0
        np.testing.assert_array_equal(x, [4, 5, 6])
    np.testing.assert_array_equal(module(np.bool_(False), x)[0], [1, 2, 3])


def test_tuples_at_the_edges_are_flat():
    mod = weft.parse("""
        def @main(%c: bool, %t: (int32, (float32, int32))) {
          if (%c) { (%t.0, %t) } else { (1, %t) }
        }""")
    module = weft.compile(mod)
    assert [port.name for port in module.inputs] == ["c", "t.0", "t.1", "t.2"]
    values = module(np.bool_(False), np.int32(2), np.float32(3), np.int32(4))
    assert [float(v) for v in values] == [1, 2, 3, 4]
    assert module.run(["output1"], {"c": np.bool_(True), "t.0": np.int32(9),
                                    "t.1": np.float32(1), "t.2": np.int32(1)}) == [9]


def test_no_clause_fits():
    module = compile_text(LISTS + "def @main(%n: int32) { @hd(@numbers(%n)) }")
    assert module(np.int32(3)) == 3
    with pytest.raises(InvalidInputError, match="no clause"):
        module(np.int32(0))


@pytest.mark.parametrize("text", [
    "def @main(%x: int32) { fn (%y: int32) { add(%x, %y) } }",
    "def @main(%x: int32) { ref(%x) }",
    'import "prelude" def @main(%xs: List[int32]) { @sum(%xs) }',
])
def test_what_cannot_cross_the_edge_is_refused(text):
    with pytest.raises(UnsupportedModelError):
        compile_text(text)


DYNAMIC = """
def @main(%x: Tensor[(n, 3), float32], %y: Tensor[(n, 1), float32]) {
  let %s = nn.softmax(add(%x, %y));
  (%s, sum(%s, axis=(0,)), transpose(%s))
}"""


def test_dynamic_shapes_are_compiled_at_first_use():
    mod = weft.parse(DYNAMIC)
    module = weft.compile(mod)
    assert module.inputs[0].shape == ("n", 3)
    for n in (1, 5, 5, 0):
        x = np.random.default_rng(n).standard_normal((n, 3)).astype(np.float32)
        y = np.ones((n, 1), np.float32)
        for one, other in zip(module(x, y), evaluate(mod, [x, y]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_one_name_is_one_size():
    module = compile_text(DYNAMIC)
    with pytest.raises(InvalidInputError, match=r"'y' cannot have size 4 .* n is 2 in input 'x'"):
        module(np.ones((2, 3), np.float32), np.ones((4, 1), np.float32))
    with pytest.raises(InvalidInputError, match="'x' has a fixed size of 3"):
        module(np.ones((2, 4), np.float32), np.ones((2, 1), np.float32))


def test_a_size_that_grows():
    mod = weft.parse("""
        def @grow(%n: int32, %x: Tensor[(?,), float32]) -> Tensor[(?,), float32] {
          if (less(%n, 1)) { %x } else {
            @grow(subtract(%n, 1), concatenate((%x, exp(%x)), axis=0))
          }
        }
        def @main(%n: int32, %x: Tensor[(2,), float32]) { @grow(%n, %x) }""")
    x = np.float32([0, -1])
    with pytest.warns(weft.FallbackWarning, match="compiled during calls.*concatenate"):
        model = weft.compile(mod)
    got = model(np.int32(3), x)
    np.testing.assert_allclose(got, evaluate(mod, [np.int32(3), x]), rtol=1e-5)


def test_programs_for_one_size_each_are_not_exported(tmp_path):
    with pytest.raises(ArtifactError, match="artifacts contain no compiler"):
        weft.compile(weft.parse(DYNAMIC), symbolic_sizes=False).export(tmp_path / "m.weft")


def test_an_artifact_runs_the_same(tmp_path):
    module = compile_text(LISTS + "def @main(%n: int32) { @sum(@numbers(%n)) }")
    path = tmp_path / "m.weft"
    module.export(path)
    loaded = weft.load(path)
    assert loaded(np.int32(9)) == module(np.int32(9)) == 45
    assert loaded.manifest.vm == module.manifest.vm


def test_a_module_from_the_cache_runs_the_same():
    mod = weft.parse(LOCAL_LOOP)
    modules = [weft.compile(mod), weft.compile(mod)]
    assert [int(m(np.int32(3), np.int32(4))) for m in modules] == [12, 12]


def test_the_bytecode_has_a_text():
    text = compile_text(LOOP).as_text("vm")
    assert "tail_call @loop" in text
    assert "jump_unless" in text
    assert "kernel[0]" in text
    assert "define" in compile_text(LOOP).as_text("llvm")


def test_a_profile_has_every_call():
    profile = on_the_machine(weft.parse(LOCAL_LOOP)).profile(np.int32(4), np.int32(1), repeat=2)
    assert {kernel.op: kernel.calls for kernel in profile.kernels} == {
        "less": 5, "subtract": 4, "add": 4}
    assert "less" in profile.table()


def test_calls_from_several_threads():
    module = compile_text(DYNAMIC)
    with ThreadPoolExecutor(4) as pool:
        arrays = [np.full((n % 3 + 1, 3), n, np.float32) for n in range(12)]
        ones = [np.ones((len(a), 1), np.float32) for a in arrays]
        for result in pool.map(module, arrays, ones):
            np.testing.assert_allclose(result[0], 1 / 3, rtol=1e-5)


def test_let_bound_functions_that_share_a_body():
    x = var("x", (2,))
    f, y = Var("f"), var("y", (2,))
    fn = Function((y,), op.tanh(op.add(y, x)))
    whole = Function((x,), Let(f, fn, op.multiply(f(x), f(op.negative(x)))))
    value = np.float32([0.5, -2])
    np.testing.assert_allclose(weft.compile(whole)(value), evaluate(whole, [value]), rtol=1e-5)


def test_a_convolution_net_of_open_batch_and_height():
    x = var("x", ("n", 3, "h", 16))
    weight = const(np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32))
    y = op.nn.conv2d(x, weight, padding=(1, 1, 1, 1), channels=8, kernel_size=(3, 3))
    y = op.nn.global_avg_pool2d(op.nn.max_pool2d(op.nn.relu(y), pool_size=(2, 2), strides=(2, 2)))
    y = op.nn.dense(op.nn.batch_flatten(y), const(np.ones((4, 8), np.float32)))
    fn = Function((x,), op.nn.softmax(y))
    module = weft.compile(fn)
    for n, h in ((1, 16), (2, 10)):
        value = np.random.default_rng(1).standard_normal((n, 3, h, 16)).astype(np.float32)
        np.testing.assert_allclose(module(value), evaluate(fn, [value]), rtol=1e-4)


def test_a_long_chain_is_no_recursion():
    ref, z = Var("r"), var("z", ())
    value = RefRead(ref)
    for _ in range(3000):
        value = op.negative(value)
    fn = Function((z,), Let(ref, RefCreate(z), value))
    assert weft.compile(fn, opt_level=0)(np.float32(3)) == 3


def test_values_are_given_up_after_their_last_use():
    text = compile_text("""
        def @main(%x: int32) {
          let %r = ref(%x);
          let %a = ref_read(%r);
          let %b = (%a, %a);
          let %c = (%b, %b);
          let %d = (%c, 1);
          %d
        }""").as_text("vm")
    main = text.split("@main(")[1].split("@")[0]
    assert main.count("free") >= 3
