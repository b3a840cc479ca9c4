"""Random typed programs over scalars, lists, closures and references, as text.

Each program is an expression of one type, int32, built from smaller ones; the text form keeps
the generator short and the failing programs readable.
"""

from __future__ import annotations

from hypothesis import strategies as st

HEAD = """
import "prelude"

def @count_up(%n: int32, %total: int32) -> int32 {
  if (less(%n, 1)) { %total } else { @count_up(subtract(%n, 1), add(%total, %n)) }
}

def @is_even(%n: int32) -> bool {
  if (less(%n, 1)) { True } else { @is_odd(subtract(%n, 1)) }
}

def @is_odd(%n: int32) -> bool {
  if (less(%n, 1)) { False } else { @is_even(subtract(%n, 1)) }
}

def @twice(%f: fn(int32) -> int32, %x: int32) -> int32 { %f(%f(%x)) }

def @numbers(%n: int32) -> List[int32] {
  if (less(%n, 1)) { Nil() } else { Cons(%n, @numbers(subtract(%n, 1))) }
}
"""


class _Writer:
    """Draws expressions; ``scope`` has the int32 variables that may be used."""

    def __init__(self, draw) -> None:
        self.draw = draw
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def pick(self, choices):
        return self.draw(st.sampled_from(choices))

    def number(self, scope: list[str], depth: int) -> str:
        if depth == 0:
            return self.pick([*scope, str(self.draw(st.integers(-3, 3)))])
        return self.pick(_KINDS)(self, scope, depth - 1)

    def small(self, scope: list[str], depth: int) -> str:
        """Between 0 and 6, for loops and lists must end."""
        return f"mod({self.number(scope, depth)}, 7)"

    def block(self, statements: list[str], result: str) -> str:
        """A scope within an expression: the body of a function that is called at once."""
        return f"(fn () -> int32 {{ {' '.join(statements)} {result} }})()"

    def function(self, scope: list[str], depth: int) -> str:
        param = self.name("p")
        return f"fn ({param}: int32) -> int32 {{ {self.number([*scope, param], depth)} }}"


def _arithmetic(w, scope, depth):
    op = w.pick(["add", "subtract", "maximum", "minimum"])
    return f"{op}({w.number(scope, depth)}, {w.number(scope, depth)})"


def _let(w, scope, depth):
    x = w.name("x")
    value = w.number(scope, depth)
    return w.block([f"let {x} = {value};"], w.number([*scope, x, x], depth))


def _choice(w, scope, depth):
    cond = w.pick([f"less({w.number(scope, depth)}, {w.number(scope, 0)})",
                   f"@is_even({w.small(scope, depth)})"])
    then, other = w.number(scope, depth), w.number(scope, depth)
    return w.block([], f"if ({cond}) {{ {then} }} else {{ {other} }}")


def _pair(w, scope, depth):
    p = w.name("t")
    value = f"({w.number(scope, depth)}, {w.number(scope, depth)})"
    return w.block([f"let {p} = {value};"], f"subtract({p}.0, {p}.1)")


def _closure(w, scope, depth):
    f = w.name("f")
    inside = w.function(scope, depth)
    return w.block([f"let {f} = {inside};"], f"@twice({f}, {f}({w.number(scope, depth)}))")


def _loop(w, scope, depth):
    return f"@count_up({w.small(scope, depth)}, {w.number(scope, depth)})"


def _local_loop(w, scope, depth):
    f, n, s = w.name("loop"), w.name("n"), w.name("s")
    step = w.number([*scope, n, s], depth)
    body = (f"if (less({n}, 1)) {{ {s} }} else "
            f"{{ {f}(subtract({n}, 1), clip({step}, a_min=-99, a_max=99)) }}")
    return w.block([f"let {f} = fn ({n}: int32, {s}: int32) -> int32 {{ {body} }};"],
                   f"{f}({w.small(scope, depth)}, {w.number(scope, 0)})")


def _list(w, scope, depth):
    xs = f"@numbers({w.small(scope, depth)})"
    mapped = f"@map({w.function(scope, depth)}, {xs})"
    return w.pick([f"@sum({mapped})", f"@length({xs})", _folded(w, scope, xs)])


def _folded(w, scope, xs):
    a, b = w.name("a"), w.name("b")
    return f"@foldr(fn ({a}: int32, {b}: int32) -> int32 {{ subtract({a}, {b}) }}, 1, {xs})"


def _match(w, scope, depth):
    x, y = w.name("x"), w.name("y")
    return w.block([], f"""match (@numbers({w.small(scope, depth)})) {{
      Cons({x}, Cons({y}, _)) => {{ {w.number([*scope, x, y], depth)} }},
      Cons({x}, Nil) => {{ {w.number([*scope, x], depth)} }},
      Nil => {{ {w.number(scope, depth)} }},
    }}""")


def _reference(w, scope, depth):
    r, u = w.name("r"), w.name("u")
    first, second = w.number(scope, depth), w.number(scope, depth)
    return w.block([f"let {r} = ref({first});",
                    f"let {u} = ref_write({r}, subtract(ref_read({r}), {second}));"],
                   f"ref_read({r})")


_KINDS = [
    _arithmetic, _let, _choice, _pair, _closure, _loop, _local_loop, _list, _match, _reference,
]  # fmt: skip


@st.composite
def texts(draw) -> str:
    """A program ``main(%a, %b)`` of two int32."""
    body = _Writer(draw).number(["%a", "%b"], draw(st.integers(1, 3)))
    return f"{HEAD}\ndef @main(%a: int32, %b: int32) -> int32 {{ {body} }}\n"
