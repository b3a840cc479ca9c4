"""Random programs in the whole language, as text: branches, loops, closures, data, references.

All values are vectors of two float64, kept small by ``tanh``, so that slopes are measurable.
"""

from __future__ import annotations

import re

from hypothesis import strategies as st

V = "Tensor[(2,), float64]"
I = "Tensor[(), int32]"  # noqa: E741

HEADER = f"""
import "prelude"
type Expression {{ Leaf({V}), Sum(Expression, Expression), Scaled({V}, Expression), Empty }}
def @value(%e: Expression, %w: {V}) -> {V} {{
  match (%e) {{
    Leaf(%x) => {{ %x }},
    Sum(%a, Leaf(%x)) => {{ add(tanh(@value(%a, %w)), %x) }},
    Sum(%a, %b) => {{ tanh(add(@value(%a, %w), @value(%b, %w))) }},
    Scaled(%s, %a) => {{ multiply(%s, @value(%a, multiply(%w, %w))) }},
    Empty => {{ %w }},
  }}
}}
def @counter(%start: {V}) -> fn({V}) -> {V} {{
  let %state = ref(%start);
  fn (%y: {V}) -> {V} {{
    let %old = ref_read(%state);
    let %_w = ref_write(%state, tanh(multiply(%old, %y)));
    let %new = ref_read(%state);
    add(%new, %old)
  }}
}}
def @ping(%n: {I}, %x: {V}, %y: {V}) -> {V} {{
  if (less_equal(%n, 0)) {{ multiply(%x, %y) }}
  else {{ tanh(@pong(subtract(%n, 1), tanh(add(%x, %y)), %x)) }}
}}
def @pong(%n: {I}, %x: {V}, %y: {V}) -> {V} {{
  if (less_equal(%n, 0)) {{ %y }} else {{ add(@ping(subtract(%n, 1), %y, %x), %y) }}
}}
"""

# Statements over values a, b, c in scope; N is a fresh number.
STATEMENTS = """
let %vN = tanh(add(%a, %b));

let %vN = multiply(%a, tanh(%b));

let %vN = if (less(sum(%a), sum(%b))) { multiply(%a, %c) } else { tanh(%b) };

let %vN = if (less(sum(%a), 1f64)) { let %q = exp(negative(%c)); multiply(%q, %a) } else { if
(less(sum(%b), sum(%c))) { %b } else { add(%a, %c) } };

let %fN = fn (%p: V) -> V { tanh(multiply(%p, %b)) }; let %vN = add(%fN(%a), %fN(%c));

let %lN = fn (%k: I, %s: V) -> V { if (less(%k, %n)) { %lN(add(%k, 1), tanh(multiply(%s, %b))) }
else { add(%s, %c) } }; let %vN = %lN(0, %a);

let %rN = fn (%k: I, %s: V) -> V { if (less_equal(%k, 0)) { %s } else {
tanh(add(%rN(subtract(%k, 1), multiply(%s, %b)), %s)) } }; let %vN = %rN(%n, %a);

let %vN = @foldl(fn (%s: V, %e: V) { tanh(add(%s, multiply(%e, %b))) }, %a, Cons(%a, Cons(%c,
Nil())));

let %mN = @map(fn (%e: V) { multiply(%e, %b) }, Cons(%a, Cons(%b, Cons(%c, Nil())))); let %vN =
@foldr(fn (%e: V, %s: V) { tanh(add(%s, %e)) }, %c, @rev(%mN));

let %vN = @value(Sum(Scaled(%a, Sum(Leaf(%b), Leaf(%c))), Sum(Empty(), Leaf(%a))), %b);

let %eN = if (less(sum(%a), sum(%c))) { Leaf(%b) } else { Scaled(%c, Leaf(tanh(%a))) }; let %vN
= @value(%eN, %a);

let %vN = match (Cons(%a, Cons(%b, Nil()))) { Cons(%p, Cons(%q, _)) => { multiply(%p, %q) }, _
=> { %c } };

let %gN = @counter(%a); let %vN = add(%gN(%b), %gN(%c));

let %cN = ref(%a); let %uN = if (less(sum(%b), 1f64)) { ref_write(%cN, tanh(%b)) } else { () };
let %vN = multiply(ref_read(%cN), %c);

let %hN = if (less(sum(%a), sum(%b))) { fn (%p: V) -> V { multiply(%p, %c) } } else { fn (%p: V)
-> V { tanh(add(%p, %a)) } }; let %vN = @iterate(%hN, %n)(%b);

let %vN = @ping(%n, %a, multiply(%b, %c));

let %tN = (%a, (tanh(%b), %n)); let %vN = multiply(%tN.0, %tN.1.0);

let %zN = @zip(Cons(%a, Cons(%b, Nil())), Cons(%c, Nil())); let %yN = @hd(%zN); let %vN =
tanh(multiply(%yN.0, %yN.1));
""".strip().split("\n\n")


@st.composite
def texts(draw, max_steps: int = 5) -> str:
    """A program ``main(x, y, n)`` of up to ``max_steps`` statements."""
    names = ["x", "y"]
    lines = []
    for number in range(draw(st.integers(1, max_steps))):
        statement = draw(st.sampled_from(STATEMENTS))
        picked = {letter: draw(st.sampled_from(names)) for letter in "abc"}
        lines.append(_filled(statement, number, picked))
        names.append(f"v{number}")
    result = f"(%{names[-1]}, %{names[-2]})" if draw(st.booleans()) else f"%{names[-1]}"
    body = "\n  ".join(lines)
    return f"{HEADER}def @main(%x: {V}, %y: {V}, %n: {I}) {{\n  {body}\n  {result}\n}}"


def _filled(statement: str, number: int, picked: dict[str, str]) -> str:
    """The statement over the picked values, with names that end in ``number``."""
    numbered = re.sub(r"(%[a-z])N\b", rf"\g<1>{number}", statement)
    typed = re.sub(r"\bI\b", I, re.sub(r"\bV\b", V, numbered))
    return re.sub(r"%([abc])\b", lambda m: f"%{picked[m[1]]}", typed)
