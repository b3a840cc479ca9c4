"""Reverse mode through recursion, closures and data: slopes, and compiled code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.unit.transform.autodiff.test_gradient import check_slopes
from tests.unit.transform.helpers import check_example, check_values, parse_program
from weft.support.errors import PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.reverse.gradient import Gradient
from weft.transform.normal_form.monomorphize import Monomorphize
from weft.transform.normal_form.store_passing import StorePassing

V = "Tensor[(2,), float32]"
I = "Tensor[(), int32]"  # noqa: E741

PROGRAMS = {
    "loop": """
        def @main(%x: V, %w: V, %n: I) {
          let %loop = fn (%k: I, %acc: V) -> V {
            if (less(%k, %n)) { %loop(add(%k, 1), tanh(multiply(%acc, %w))) }
            else { multiply(%acc, %x) }
          };
          %loop(0, exp(%x))
        }""",
    "mutual recursion": """
        def @even(%n: I, %x: V) -> V {
          if (less_equal(%n, 0)) { %x } else { tanh(@odd(subtract(%n, 1), multiply(%x, %x))) }
        }
        def @odd(%n: I, %x: V) -> V {
          if (less_equal(%n, 0)) { exp(%x) } else { multiply(@even(subtract(%n, 1), %x), %x) }
        }
        def @main(%x: V, %n: I) { @even(add(%n, 3), %x) }""",
    "map and foldl": """
        import "prelude"
        def @main(%x: V, %w: V) {
          let %xs = Cons(%x, Cons(%w, Nil()));
          let %ys = @map(fn (%a: V) { multiply(%a, %w) }, %xs);
          @foldl(fn (%s: V, %a: V) { add(%s, tanh(%a)) }, @compose(@id, @id)(%x), %ys)
        }""",
    "lists of tuples": """
        import "prelude"
        def @main(%x: V, %w: V, %n: I) {
          let %xs = Cons(%x, Cons(exp(%w), Cons(multiply(%x, %w), Nil())));
          let %p = @zip(%xs, @map(fn (%a: V) { (tanh(%a), %n) }, @rev(%xs)));
          let %q = @nth(%p, minimum(%n, 2));
          multiply(add(%q.0, %q.1.0), @nth(%xs, 1))
        }""",
    "a binary tree": """
        type Leafy { Leaf(V), Node(Leafy, Leafy) }
        def @grow(%n: I, %x: V) -> Leafy {
          if (less_equal(%n, 0)) { Leaf(%x) }
          else {
            Node(@grow(subtract(%n, 1), tanh(%x)), @grow(subtract(%n, 2), multiply(%x, %x)))
          }
        }
        def @reduce(%t: Leafy, %w: V) -> V {
          match (%t) {
            Leaf(%x) => { multiply(%x, %w) },
            Node(%a, Leaf(%b)) => { add(@reduce(%a, %w), exp(%b)) },
            Node(%a, %b) => { multiply(@reduce(%a, %w), @reduce(%b, %w)) },
          }
        }
        def @main(%x: V, %w: V, %n: I) { @reduce(@grow(add(%n, 2), %x), %w) }""",
    "a rose tree": """
        import "prelude"
        def @main(%x: V, %w: V) {
          let %t = Rose(%x, Cons(Rose(%w, Nil()), Cons(Rose(multiply(%x, %w), Nil()), Nil())));
          let %u = @tmap(fn (%a: V) { exp(multiply(%a, %w)) }, %t);
          match (%u) {
            Rose(%a, Cons(Rose(%b, _), Cons(Rose(%c, _), _))) => { multiply(add(%a, %b), %c) },
            _ => { %x },
          }
        }""",
    "functions chosen at run time": """
        import "prelude"
        def @main(%x: V, %w: V, %n: I) {
          let %f = if (less(sum(%x), sum(%w))) { fn (%a: V) { multiply(%a, %w) } }
                   else { fn (%a: V) { tanh(add(%a, %w)) } };
          @iterate(%f, %n)(%x)
        }""",
    "calls of a chosen function": """
        def @one(%x: V) -> V { tanh(%x) }
        def @main(%x: V, %w: V) {
          let %f = if (less(sum(%x), sum(%w))) { @one } else { @other };
          multiply(%f(%w), (if (less(sum(%w), sum(%x))) { @one } else { @other })(%x))
        }
        def @other(%x: V) -> V { multiply(%x, %x) }""",
    "scans and unfolds": """
        import "prelude"
        def @main(%x: V, %w: V) {
          let %xs = Cons(%x, Cons(%w, Cons(tanh(%x), Nil())));
          let %r = @map_accuml(
            fn (%s: V, %a: V) { (multiply(%s, %a), add(%s, exp(%a))) }, %w, %xs);
          let %u = @unfoldr(fn (%s: (I, V)) {
            if (less(%s.0, 3)) { Some(((add(%s.0, 1), tanh(%s.1)), multiply(%s.1, %x))) }
            else { None() }
          }, (0, %r.0));
          @foldr(fn (%a: V, %s: V) { add(%s, multiply(%a, %s)) }, %x, @concat(%r.1, %u))
        }""",
    "references": """
        def @main(%x: V, %w: V) {
          let %r = ref(%x);
          let %a = ref_read(%r);
          let %_1 = ref_write(%r, multiply(%a, %w));
          let %s = ref(%w);
          let %_2 = ref_write(%s, exp(ref_read(%r)));
          let %b = ref_read(%s);
          let %c = ref_read(%r);
          multiply(%b, %c)
        }""",
    "a loop that writes to a reference": """
        def @main(%x: V, %w: V, %n: I) {
          let %total = ref(%x);
          let %loop = fn (%k: I) -> () {
            if (less(%k, %n)) {
              let %t = ref_read(%total);
              let %_1 = ref_write(%total, tanh(multiply(%t, %w)));
              %loop(add(%k, 1))
            } else { () }
          };
          let %u = %loop(0);
          let %t = ref_read(%total);
          multiply(%t, %x)
        }""",
    "closures with state": """
        import "prelude"
        def @counter(%start: V) -> fn(V) -> V {
          let %state = ref(%start);
          fn (%y: V) -> V {
            let %old = ref_read(%state);
            let %_1 = ref_write(%state, multiply(%old, %y));
            let %new = ref_read(%state);
            add(%new, %old)
          }
        }
        def @main(%x: V, %w: V) {
          let %f = @counter(%x);
          let %g = @counter(%w);
          let %a = %f(%w);
          let %b = %g(%a);
          let %l = @map(%f, Cons(%b, Cons(%x, Nil())));
          @foldl(fn (%s: V, %y: V) { tanh(add(%s, %g(tanh(%y)))) }, %a, %l)
        }""",
    "references to references": """
        def @main(%x: V, %w: V) {
          let %r = ref(%x);
          let %rr = ref(%r);
          let %u = if (less(sum(%x), sum(%w))) { ref_write(%r, exp(%x)) }
                   else { let %q = ref(tanh(%w)); ref_write(%rr, %q) };
          let %z = ref_read(%rr);
          let %v = ref_read(%z);
          let %o = ref_read(%r);
          multiply(%v, add(%o, %w))
        }""",
}


def _text(name: str) -> str:
    return re.sub(r"\bI\b", I, re.sub(r"\bV\b", V, PROGRAMS[name]))


def test_monomorphize():
    check_example(Monomorphize())


@pytest.mark.parametrize("name", PROGRAMS)
def test_slopes(name):
    check_slopes(_text(name))


SIZES = {
    "loop": """
        def @main(%x: V, %w: V, %n: I) {
          let %loop = fn (%k: I, %acc: V) -> V {
            if (less(%k, %n)) { %loop(add(%k, 1), tanh(multiply(%acc, %w))) }
            else { multiply(%acc, %x) }
          };
          %loop(0, exp(%x))
        }""",
    "list": """
        import "prelude"
        def @main(%x: V, %w: V, %n: I) {
          let %xs = Cons(%x, Cons(multiply(%x, %w), Cons(tanh(%w), Nil())));
          let %ys = @map(fn (%a: V) { multiply(%a, %w) }, %xs);
          multiply(@nth(%ys, minimum(%n, 2)), @hd(@tl(%xs)))
        }""",
}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dim", ["n", "?"])
def test_sizes_that_only_calls_know(name, dim):
    program = Gradient()(_sized(name, dim))
    for size in (2, 3):
        _check_sizes(name, size, lambda inputs: evaluate(program, inputs)[1])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:kernels are compiled during calls:weft.FallbackWarning")
@pytest.mark.parametrize("dim", ["n", "?"])
def test_compiled_sizes_that_only_calls_know(dim):
    with pytest.warns(weft.FallbackWarning, match="compiled for each new set of input shapes"):
        program = weft.compile(Gradient()(_sized("list", dim)))
    for size in (2, 3):
        _check_sizes("list", size, lambda inputs: program(*inputs)[1:])


def _check_sizes(name, size, gradients):
    inputs = [np.linspace(0.2, 0.7, size, dtype=np.float32),
              np.linspace(0.5, 1.1, size, dtype=np.float32), np.int32(2)]
    _, expected = evaluate(Gradient()(_sized(name, str(size))), inputs)
    for found, wanted in zip(gradients(inputs), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def _sized(name, dim):
    text = re.sub(r"\bV\b", f"Tensor[({dim},), float32]", SIZES[name])
    return parse_program(re.sub(r"\bI\b", I, text))


def test_references_of_the_caller_are_refused():
    mod = parse_program(f"def @main(%r: ref({V})) {{ let %x = ref_read(%r); tanh(%x) }}")
    with pytest.raises(PassError, match="references of its caller"):
        Gradient()(mod)
    mod = parse_program(f"def @main(%x: {V}) {{ ref(%x) }}")
    with pytest.raises(PassError, match="returns a reference"):
        Gradient()(mod)


@pytest.mark.parametrize("name", ["references", "references to references"])
def test_store_passing_keeps_values(name):
    check_values(parse_program(_text(name)), StorePassing()(parse_program(_text(name))))


QUICK = ("references",)


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in PROGRAMS])
def test_compiled_code_agrees_with_the_interpreter(name):
    mod = parse_program(_text(name))
    rng = np.random.default_rng(0)
    types = [p.checked_type for p in mod["main"].params]
    inputs = [np.asarray(rng.uniform(0.2, 1.2, t.concrete_shape), t.dtype.numpy)
              if t.dtype.is_float else np.int32(2) for t in types]
    after = Gradient()(mod)
    value, grads = evaluate(after, inputs)
    found = weft.compile(after)(*inputs)
    for a, b in zip((value, *grads), found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-6)
