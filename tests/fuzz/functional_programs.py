"""Random programs whose meaning lies in their effects, sharing and generics, as text.

They add to the programs of the virtual machine's tests: references that are passed on, captured
and written in loops and branches; closures with state; values shared by graph bindings; generic
functions and data with explicit and inferred type arguments.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.unit.compiler.vm import programs as base

HEAD = base.HEAD + """
def @new(%n: int32) -> ref(int32) { ref(0) }

def @bump(%r: ref(int32), %by: int32) -> int32 {
  let %u = ref_write(%r, add(ref_read(%r), %by));
  ref_read(%r)
}

def @counter(%step: int32) -> fn() -> int32 {
  let %r = ref(%step);
  fn () -> int32 { @bump(%r, %step) }
}

def @fst[A, B](%p: (A, B)) -> A { %p.0 }

def @pair[A, B](%x: A, %y: B) -> (A, B) { (%x, %y) }

def @or_else[A](%o: Option[A], %other: A) -> A {
  match (%o) { Some(%x) => { %x }, None => { %other } }
}

def @positive(%n: int32) -> Option[int32] { if (less(%n, 1)) { None() } else { Some(%n) } }
"""


class Writer(base._Writer):
    """Draws from the kinds of both modules."""

    def number(self, scope: list[str], depth: int) -> str:
        if depth == 0 or self.draw(st.integers(0, 2)) == 0:
            return super().number(scope, depth)
        return self.pick(_KINDS)(self, scope, depth - 1)


def _two_references(w: Writer, scope: list[str], depth: int) -> str:
    r, s, u = w.name("r"), w.name("s"), w.name("u")
    made = w.pick([f"@new({w.number(scope, 0)})", "@new(0)", f"ref({w.number(scope, depth)})"])
    return w.block(
        [f"let {r} = {made};", f"let {s} = @new(0);",
         f"let {u} = @bump({r}, {w.number(scope, depth)});"],
        w.pick([f"subtract(@bump({s}, 1), ref_read({r}))",
                f"subtract(ref_read({r}), @bump({s}, {u}))"]),
    )  # fmt: skip


def _counter(w: Writer, scope: list[str], depth: int) -> str:
    c, x = w.name("c"), w.name("x")
    return w.block(
        [f"let {c} = @counter({w.number(scope, depth)});", f"let {x} = {c}();"],
        w.pick([f"subtract({c}(), {c}())", f"subtract({c}(), {w.number([*scope, x], depth)})"]),
    )


def _order_of_arguments(w: Writer, scope: list[str], depth: int) -> str:
    r = w.name("r")
    one, two = (f"@bump({r}, {w.number(scope, depth)})" for _ in range(2))
    return w.block([f"let {r} = ref({w.number(scope, 0)});"], f"subtract({one}, {two})")


def _written_in_a_branch(w: Writer, scope: list[str], depth: int) -> str:
    r, u = w.name("r"), w.name("u")
    write = f"ref_write({r}, {w.number(scope, depth)})"
    other = w.pick([f"ref_write({r}, subtract(ref_read({r}), 1))", "()"])
    cond = f"less({w.number(scope, depth)}, {w.number(scope, 0)})"
    return w.block(
        [f"let {r} = ref({w.number(scope, 0)});",
         f"let {u} = if ({cond}) {{ {write} }} else {{ {other} }};"],
        f"ref_read({r})",
    )  # fmt: skip


def _written_in_a_loop(w: Writer, scope: list[str], depth: int) -> str:
    r, f, n, u = w.name("r"), w.name("loop"), w.name("n"), w.name("u")
    step = f"clip({w.number([*scope, n], depth)}, a_min=-9, a_max=9)"
    body = (f"if (less({n}, 1)) {{ ref_read({r}) }} else "
            f"{{ let {u} = @bump({r}, {step}); {f}(subtract({n}, 1)) }}")
    return w.block(
        [f"let {r} = ref({w.number(scope, 0)});",
         f"let {f} = fn ({n}: int32) -> int32 {{ {body} }};"],
        f"{f}({w.small(scope, depth)})",
    )  # fmt: skip


def _mapped_with_effects(w: Writer, scope: list[str], depth: int) -> str:
    r, x = w.name("r"), w.name("x")
    each = f"fn ({x}: int32) -> int32 {{ @bump({r}, {w.number([*scope, x], depth)}) }}"
    summed = f"@sum(@map({each}, @numbers({w.small(scope, 0)})))"
    return w.block([f"let {r} = ref(0);"], f"subtract({summed}, ref_read({r}))")


def _shared(w: Writer, scope: list[str], depth: int) -> str:
    """A node with several users, in branches as well."""
    s, t = w.name("s"), w.name("t")
    inner = [*scope, s, s, t]
    cond = f"less({s}, {w.number(scope, 0)})"
    return w.block(
        [f"{s} = {w.number(scope, depth)};", f"{t} = maximum({s}, {w.number([*scope, s], 0)});"],
        f"if ({cond}) {{ {w.number(inner, depth)} }} else {{ {w.number(inner, depth)} }}",
    )


def _names_of_names(w: Writer, scope: list[str], depth: int) -> str:
    x, y, z = w.name("x"), w.name("y"), w.name("z")
    value = w.pick([w.number(scope, depth), f"ref({w.number(scope, 0)})"])
    if value.startswith("ref("):
        result = f"subtract(@bump({x}, {w.number(scope, depth)}), @bump({z}, ref_read({y})))"
    else:
        result = w.number([*scope, x, y, z, z], depth)
    return w.block([f"let {x} = {value};", f"let {y} = {x};", f"let {z} = {y};"], result)


def _generic(w: Writer, scope: list[str], depth: int) -> str:
    x, y = w.number(scope, depth), w.number(scope, 0)
    return w.pick([
        f"@fst(@pair({x}, (1f, {y})))",
        f"@fst[int32, bool](@pair({x}, True))",
        f"@or_else(@positive({x}), {y})",
        f"@or_else[int32](None(), {x})",
        f"@length(@map(@positive, Cons({x}, Nil())))",
        f"@nth(Cons({x}, @numbers({w.small(scope, 0)})), 0)",
        f"@compose({w.function(scope, depth)}, @id)({y})",
        f"@iterate({w.function(scope, 0)}, {w.small(scope, 0)})({x})",
    ])  # fmt: skip


def _tuple_match(w: Writer, scope: list[str], depth: int) -> str:
    x, y, z = w.name("x"), w.name("y"), w.name("z")
    value = f"({w.number(scope, depth)}, (@positive({w.number(scope, depth)}), 1))"
    return w.block([], f"""match ({value}) {{
      ({x}, (Some({y}), _)) => {{ {w.number([*scope, x, y], depth)} }},
      ({z}, (None, _)) => {{ {w.number([*scope, z], depth)} }},
    }}""")


_KINDS = [
    _two_references, _counter, _order_of_arguments, _written_in_a_branch, _written_in_a_loop,
    _mapped_with_effects, _shared, _shared, _names_of_names, _generic, _generic, _tuple_match,
]  # fmt: skip


@st.composite
def texts(draw: st.DrawFn, max_depth: int = 3) -> str:
    """A program ``main(%a, %b)`` of two int32."""
    body = Writer(draw).number(["%a", "%b"], draw(st.integers(1, max_depth)))
    return f"{HEAD}\ndef @main(%a: int32, %b: int32) -> int32 {{ {body} }}\n"
