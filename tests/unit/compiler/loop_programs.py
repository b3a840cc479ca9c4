"""Random programs of loops: nested, with early ends, choices, tuples and values that swap."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

TUPLE = "(int32, Tensor[(2,), int32])"


@dataclass
class _Maker:
    """Writes expressions; every one it binds may be used by what comes after."""

    draw: st.DrawFn
    count: int = 0
    lines: list[str] = field(default_factory=list)

    def choose(self, *options: str) -> str:
        return self.draw(st.sampled_from(options))

    def fresh(self, stem: str) -> str:
        self.count += 1
        return f"%{stem}{self.count}"

    def number(self, numbers: list[str]) -> str:
        kind = self.choose("old", "add", "negative", "constant")
        if kind == "old":
            return self.choose(*numbers)
        if kind == "constant":
            return self.choose("0", "3", "5")
        if kind == "negative":
            return f"negative({self.choose(*numbers)})"
        return f"add({self.choose(*numbers)}, {self.choose(*numbers)})"

    def vector(self, numbers: list[str], vectors: list[str]) -> str:
        kind = self.choose("old", "add", "reshape", "update")
        if kind == "old":
            return self.choose(*vectors)
        if kind == "reshape":
            return f"reshape(reshape({self.choose(*vectors)}, newshape=(1, 2)), newshape=(2,))"
        if kind == "update":  # at an index that may be out of range
            index = f"reshape({self.choose(*numbers)}, newshape=(1, 1))"
            value = f"reshape({self.choose(*numbers)}, newshape=(1,))"
            return f"scatter_nd({self.choose(*vectors)}, {index}, {value})"
        return f"add({self.choose(*vectors)}, {self.choose(*numbers)})"

    def result(self, numbers: list[str], vectors: list[str]) -> str:
        return f"({self.number(numbers)}, {self.vector(numbers, vectors)})"

    def loop(self, numbers: list[str], vectors: list[str], depth: int) -> str:
        """An expression of type ``TUPLE``: a loop of at most four rounds."""
        name = self.fresh("loop")
        k, a, b = self.fresh("k"), self.fresh("a"), self.fresh("b")
        v, t = self.fresh("v"), self.fresh("t")
        types = f"{k}: int32, {a}: int32, {b}: int32, {v}: Tensor[(2,), int32], {t}: {TUPLE}"
        inner = [*numbers, k, a, b, f"{t}.0"]
        tensors = [*vectors, v, f"{t}.1"]
        before = ""
        if depth and self.choose("nested", "flat") == "nested":
            pair = self.fresh("p")
            before = f"let {pair} = {{ {self.loop(inner, tensors, depth - 1)} }};\n"
            inner.append(f"{pair}.0")
            tensors.append(f"{pair}.1")

        def again() -> str:
            args = [f"subtract({k}, 1)", self.choose(b, self.number(inner)),
                    self.choose(a, self.number(inner)), self.vector(inner, tensors),
                    self.choose(t, self.result(inner, tensors))]
            return f"{name}({', '.join(args)})"

        step = again()
        if self.choose("one way", "two ways") == "two ways":
            other = again() if self.choose("again", "end") == "again" \
                else self.result(inner, tensors)
            choice = f"less({self.number(inner)}, {self.number(inner)})"
            step = f"if ({choice}) {{ {step} }} else {{ {other} }}"
        end = self.result(inner, tensors)
        body = f"{before}if (less({k}, 1)) {{ {end} }} else {{ {step} }}"
        if self.choose("first", "last") == "last":
            body = f"{before}if (greater({k}, 0)) {{ {step} }} else {{ {end} }}"
        first = [f"minimum({self.number(numbers)}, 4)", self.number(numbers),
                 self.number(numbers), self.vector(numbers, vectors),
                 self.result(numbers, vectors)]
        called = f"{name}({', '.join(first)})"
        return f"let {name} = fn ({types}) -> {TUPLE} {{\n{body}\n}};\n{called}"


@st.composite
def loop_texts(draw: st.DrawFn) -> str:
    """A program over two numbers and a vector, whose result is ``TUPLE``."""
    make = _Maker(draw)
    numbers, vectors = ["%x", "%y"], ["%z"]
    first = make.loop(numbers, vectors, 2)
    second = make.loop([*numbers, "%r.0"], [*vectors, "%r.1"], 1)
    if make.choose("always", "perhaps") == "perhaps":
        second = f"if (less(%x, %y)) {{ {second} }} else {{ %r }}"
    return (f"def @main(%x: int32, %y: int32, %z: Tensor[(2,), int32]) -> {TUPLE} {{\n"
            f"let %r = {{ {first} }};\n{second}\n}}")
