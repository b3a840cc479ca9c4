"""Reverse mode through recursion, closures and data: slopes, and compiled code."""

from __future__ import annotations

import re

import numpy as np
import pytest

import weft
from tests.unit.transform.helpers import check_example, parse_program
from tests.unit.transform.test_gradient import check_slopes
from weft.transform.analysis.reference import evaluate
from weft.transform.autodiff.gradient import Gradient
from weft.transform.normal_form.monomorphize import Monomorphize

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
}


def _text(name: str) -> str:
    return re.sub(r"\bI\b", I, re.sub(r"\bV\b", V, PROGRAMS[name]))


def test_monomorphize():
    check_example(Monomorphize())


@pytest.mark.parametrize("name", PROGRAMS)
def test_slopes(name):
    check_slopes(_text(name))


QUICK = ("map and foldl",)


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
