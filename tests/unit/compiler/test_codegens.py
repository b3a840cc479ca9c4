"""Code generators of users: what they give becomes part of the compiled module."""

from __future__ import annotations

import pickle
import runpy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from tests.docs.coverage_page import ROOT
from weft import op, te
from weft.codegen.llvm.build import build_text
from weft.codegen.llvm.target_machine import data_layout
from weft.ir import Function, IRModule, var
from weft.ir.rewrite.pattern import any_
from weft.support.errors import ArtifactError, CodegenError, OptionError, RegistryError
from weft.transform import (
    CompositePattern,
    ObjectCode,
    PythonCode,
    TensorCode,
    evaluate,
    register_external_codegen,
)
from weft.transform.external.codegen import EXTERNAL_CODEGENS

pytestmark = pytest.mark.usefixtures("own_cache")

X = np.float32([[1, -2, 3], [4, 5, -6]])
PROGRAM = """
def @main(%x: Tensor[(2, 3), float32]) {
  %0 = nn.relu(exp(%x));
  (tanh(%0), negative(%0))
}"""


@pytest.fixture
def generator():
    """Registers a generator ``acc`` that is gone after the test."""
    def register(generate, supports=("exp", "nn.relu"), **options):
        return register_external_codegen("acc", supports=supports, generate=generate, **options)

    yield register
    if "acc" in EXTERNAL_CODEGENS:
        EXTERNAL_CODEGENS.remove("acc")


def compiled(text=PROGRAM, **options):
    mod = weft.parse(text) if isinstance(text, str) else text
    module = weft.compile(mod, codegens=["acc"], **options)
    return module, mod


def check(module, mod, *inputs):
    results, expected = module(*inputs), evaluate(mod, list(inputs))
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) \
        else [(results, expected)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-5)


def doubling_object(region):
    """Machine code that doubles 6 floats, from LLVM IR."""
    text = f"""
target datalayout = "{data_layout(region.target)}"
target triple = "{region.target.triple}"
define void @{region.name}(ptr %x, ptr %y) {{
  %v = load <6 x float>, ptr %x, align 4
  %w = fadd <6 x float> %v, %v
  store <6 x float> %w, ptr %y, align 4
  ret void
}}
"""
    return build_text(region.name, text, region.target).object


@pytest.mark.parametrize("opt_level", [0, 3])
def test_python(generator, opt_level):
    regions = []

    def generate(region):
        regions.append(region)
        return PythonCode(lambda x: np.maximum(np.exp(x), 0))

    generator(generate)
    module, mod = compiled(opt_level=opt_level)
    assert module.manifest.vm is None
    check(module, mod, X)
    (region,) = regions
    assert region.name.isidentifier()
    assert str(region.function.body.checked_type) == "Tensor[(2, 3), float32]"
    assert {k.op: k.calls for k in module.profile(X, repeat=1).kernels}[region.name] == 1


def test_regions_with_several_results(generator):
    generator(lambda _: PythonCode(lambda x: (np.tanh(x), -x)), supports=("tanh", "negative"))
    module, mod = compiled()
    check(module, mod, X)


def test_tensor_expressions_are_scheduled_and_exported(generator, tmp_path):
    def generate(_):
        return TensorCode(lambda x: te.compute(x.shape, lambda *i: te.maximum(te.exp(x[i]), 0.0),
                                               name="y"))

    generator(generate)
    module, mod = compiled()
    check(module, mod, X)
    module.export(tmp_path / "m.weft")
    check(weft.load(tmp_path / "m.weft"), mod, X)


def test_another_program(generator):
    x = var("x", (2, 3))
    generator(lambda _: Function((x,), op.exp(x)))  # which is above zero anyway
    module, mod = compiled()
    check(module, mod, X)
    assert "nn.relu" not in module.as_text("lowered")
    EXTERNAL_CODEGENS.remove("acc")
    generator(lambda _: IRModule({"main": Function((x,), op.exp(x))}))
    check(compiled()[0], mod, X)


def test_machine_code_is_linked_and_exported(generator, tmp_path):
    generator(lambda r: ObjectCode(r.name, doubling_object(r)), supports=("exp",))
    module, _ = compiled("def @main(%x: Tensor[(2, 3), float32]) { add(exp(%x), 1f) }")
    np.testing.assert_array_equal(module(X), X + X + 1)
    module.export(tmp_path / "m.weft")
    np.testing.assert_array_equal(weft.load(tmp_path / "m.weft")(X), X + X + 1)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(module))(X), X + X + 1)


def test_what_is_declined_stays(generator):
    generator(lambda _: None)
    with pytest.warns(weft.FallbackWarning, match="'acc': exp(.|\n)*generator declines") as told:
        module, mod = compiled()
    assert len(told) == 1
    assert "declines" in module.explain()
    check(module, mod, X)
    assert "external" not in " ".join(s.implementation for s in module.manifest.steps)


def test_composites_are_seen_whole_and_taken_apart_when_declined(generator):
    seen = []
    pattern = CompositePattern("layer", op.nn.relu(op.exp(any_())))
    generator(lambda region: seen.append(region.function), supports=(), patterns=[pattern])
    with pytest.warns(weft.FallbackWarning, match="the generator declines"):
        module, mod = compiled()
    check(module, mod, X)
    assert 'composite="layer"' in str(seen[0])
    assert "composite" not in module.as_text("lowered")


def test_regions_in_loops_and_on_the_machine(generator):
    generator(lambda _: PythonCode(lambda x: np.exp(-x)), supports=("exp", "negative"))
    loop = """
        def @main(%n: int32, %x: Tensor[(3,), float32]) {
          let %loop = fn (%i: int32, %s: Tensor[(3,), float32]) -> Tensor[(3,), float32] {
            if (less(%i, %n)) { %loop(add(%i, 1), add(%s, %x)) } else { %s }
          };
          %loop(0, exp(negative(%x)))
        }"""
    module, mod = compiled(loop)
    assert module.manifest.vm is None
    check(module, mod, np.int32(3), X[0])
    recursion = """
        def @f(%n: int32, %x: Tensor[(3,), float32]) -> Tensor[(3,), float32] {
          if (less(%n, 1)) { %x } else { add(@f(subtract(%n, 1), %x), 1f) }
        }
        def @main(%n: int32, %x: Tensor[(3,), float32]) { @f(%n, exp(negative(%x))) }"""
    module, mod = compiled(recursion)
    assert module.manifest.vm is not None
    check(module, mod, np.int32(3), X[0])


def test_a_model_with_dynamic_shapes_asks_for_each(generator):
    asked = []

    def generate(region):
        asked.append(region.function.params[0].checked_type.concrete_shape)
        return PythonCode(np.exp)

    generator(generate, supports=("exp",))
    with pytest.warns(weft.FallbackWarning, match=r"axis 0 \(n\) of input 'x'"):
        module, mod = compiled("def @main(%x: Tensor[(n, 3), float32]) { exp(%x) }")
    for rows in (1, 2, 1):
        check(module, mod, X[:rows])
    assert asked == [(1, 3), (2, 3)]


def test_errors_of_python_code_reach_their_caller(generator):
    def fails(x):
        if x[0, 0] < 0:
            raise ZeroDivisionError("no")
        return np.exp(x)

    generator(lambda _: PythonCode(fails), supports=("exp",))
    module, mod = compiled()
    given, out = X.copy(), module(X)
    run = module.bind(given)
    for call in (lambda: module(-X), lambda: module(-X, out=out), run):
        given[...] = -X
        with pytest.raises(CodegenError, match="ZeroDivisionError: no"):
            call()
    given[...] = X
    np.testing.assert_array_equal(run(), module(X))
    check(module, mod, X)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(module, X if n % 2 else -X) for n in range(12)]
    assert [call.exception() is None for call in calls] == [n % 2 == 1 for n in range(12)]


FAILURES = {"exp": ZeroDivisionError("of exp"), "tanh": ValueError("of tanh"),
            "negative": KeyboardInterrupt("of negative")}


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("failing", [
    ("exp",), ("tanh",), ("exp", "tanh"), ("tanh", "negative"), ("exp", "tanh", "negative"),
], ids="+".join)
@pytest.mark.parametrize("how", ["call", "run", "profile", "watched"])
def test_errors_of_several_regions_end_with_their_call(generator, failing, how, monkeypatch):
    """Each operator is a region of its own; errors come when the input is negative."""
    monkeypatch.setenv("WEFT_DEBUG", "2" if how == "watched" else "0")

    def generate(region):
        (name,) = [n for n in FAILURES if n in str(region.function)]

        def body(x):
            if x.min() < 0 and name in failing:
                raise FAILURES[name]
            return -x if name == "negative" else getattr(np, name)(x)

        return PythonCode(body)

    generator(generate, supports=tuple(FAILURES))
    module, _ = compiled("""
        def @main(%x: Tensor[(2,), float32]) { negative(add(tanh(add(exp(%x), %x)), %x)) }""")
    good, bad = np.float32([1, 2]), np.float32([-8, -9])
    call = {"call": module, "run": lambda x: module.run(None, {"x": x})[0],
            "profile": lambda x: module.profile(x, repeat=1), "watched": module}[how]
    error = KeyboardInterrupt if "negative" in failing else CodegenError
    for _ in range(2):
        with pytest.raises(error, match=f"of {failing[-1 if error is KeyboardInterrupt else 0]}"):
            call(bad)
        np.testing.assert_allclose(module(good), -(np.tanh(np.exp(good) + good) + good), 1e-5)


def test_a_region_that_calls_its_own_module_keeps_errors_apart(generator):
    inner, good = [], np.float32([1, 2])

    def fails(x):
        if x[0] < 0:
            raise ValueError("of the outer call")
        return np.exp(x)

    def calls(x):
        if not inner:
            inner.append(None)
            inner[0] = module(good)
        return np.tanh(x)

    generator(lambda region: PythonCode(fails if "exp" in str(region.function) else calls),
              supports=("exp", "tanh"))
    module, _ = compiled("def @main(%x: Tensor[(2,), float32]) { tanh(add(exp(%x), %x)) }")
    with pytest.raises(CodegenError, match="of the outer call"):
        module(np.float32([-1, 2]))
    np.testing.assert_allclose(inner[0], np.tanh(np.exp(good) + good), 1e-5)


def test_arguments_are_read_only_and_results_have_their_type(generator):
    def writes(x):
        x[...] = 0
        return x

    generator(lambda _: PythonCode(writes), supports=("exp",))
    with pytest.raises(CodegenError, match="read-only"):
        compiled()[0](X)
    EXTERNAL_CODEGENS.remove("acc")
    generator(lambda _: PythonCode(lambda x: x.astype(np.float64)), supports=("exp",))
    with pytest.raises(CodegenError, match="float64"):
        compiled()[0](X)


def test_python_code_does_not_leave_the_process(generator, tmp_path):
    generator(lambda _: PythonCode(np.exp), supports=("exp",))
    module, _ = compiled()
    for leave in (lambda: module.export(tmp_path / "m.weft"), lambda: pickle.dumps(module)):
        with pytest.raises(ArtifactError, match="cannot be exported"):
            leave()
    again = weft.compile(weft.parse(PROGRAM))  # nothing of the generator is in the cache
    assert "external" not in " ".join(s.implementation for s in again.manifest.steps)


@pytest.mark.parametrize(("generate", "words"), [
    (lambda _: 3, ("int", "ObjectCode")),
    (lambda _: Function((var("x", (2, 3)),), op.exp(var("x", (2, 3)))), ("bound", "%x")),
    (lambda r: Function(r.function.params, op.sum(r.function.body)), ("another type", "(2, 3)")),
    (lambda r: ObjectCode("other", doubling_object(r)), ("lacks its symbol", "other")),
    (lambda _: ObjectCode("x", b"no object"), ("ELF",)),
    (lambda _: IRModule({}), ("main only",)),
], ids=["number", "free", "type", "symbol", "bytes", "empty"])
def test_what_is_no_code_for_the_region(generator, generate, words):
    generator(generate, supports=("exp",))
    with pytest.raises(weft.WeftError) as caught:
        compiled()
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_two_regions_with_one_symbol(generator):
    def generate(region):
        return ObjectCode("same", doubling_object(type(region)("same", region.function,
                                                               region.target)))

    generator(generate, supports=("exp", "abs"))
    with pytest.raises(CodegenError, match="two kernels define 'same'"):
        compiled("def @main(%x: Tensor[(2, 3), float32]) { exp(tanh(abs(%x))) }")


def test_generators_that_are_not_there(generator):
    with pytest.raises(RegistryError, match="acc"):
        compiled()
    with pytest.raises(OptionError, match="codegens cannot be used"):
        weft.compile(weft.parse(PROGRAM), codegens="acc")
    generator(None)
    with pytest.raises(OptionError, match="cannot generate code"):
        compiled()


def test_the_example_of_a_c_compiler(capsys):
    runpy.run_path(str(ROOT / "examples" / "c_codegen.py"), run_name="__main__")
    EXTERNAL_CODEGENS.remove("c")
    assert "nn.dense" in capsys.readouterr().out
