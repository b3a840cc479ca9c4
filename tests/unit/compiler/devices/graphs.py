"""Random programs without control flow: DAGs of a few operators on square matrices."""

from __future__ import annotations

import random

from hypothesis import strategies as st

_BINARY = ("add", "multiply", "nn.dense", "maximum")
_UNARY = ("tanh", "nn.relu", "nn.softmax", "sigmoid", "transpose")
# Aliases of their operand: a result, or a copy from one device to another, may be of one alone.
_ALIASES = ("copy({})", "expand_dims({}, axis=0)", "reshape({}, newshape=[-1])")


@st.composite
def graph_texts(draw: st.DrawFn, size: int = 8, most: int = 14, annotations: int = 0) -> str:
    """A program with inputs ``x`` and ``y``, and one to three results.

    ``annotations`` is the number of devices that tensors may be annotated with.
    """
    type_ = f"Tensor[({size}, {size}), float32]"
    names = ["%x", "%y"]
    lines = []
    for number in range(draw(st.integers(1, most))):
        name = f"%v{number}"
        if draw(st.booleans()):
            operator = draw(st.sampled_from(_BINARY))
            a, b = draw(st.sampled_from(names)), draw(st.sampled_from(names))
            lines.append(f"let {name} = {operator}({a}, {b});")
        else:
            operator = draw(st.sampled_from(_UNARY))
            lines.append(f"let {name} = {operator}({draw(st.sampled_from(names))});")
        if annotations and draw(st.booleans()):
            device = f"sim:{draw(st.integers(0, annotations - 1))}"
            lines.append(f'let {name}d = annotation.on_device({name}, device="{device}");')
            name += "d"
        names.append(name)
    results = [names[-1], *draw(st.lists(st.sampled_from(names), max_size=2))]
    for number, alias in enumerate(draw(st.lists(st.sampled_from(_ALIASES), max_size=2))):
        device = draw(st.integers(0, annotations - 1)) if annotations else None
        call = alias.format(draw(st.sampled_from(names)))
        if device is not None:
            call = f'annotation.on_device({call}, device="sim:{device}")'
        lines.append(f"let %r{number} = {call};")
        results.append(f"%r{number}")
    body = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"def @main(%x: {type_}, %y: {type_}) {{\n" + "\n".join((*lines, body)) + "\n}"


def large_graph(seed: int, size: int, nodes: int) -> str:
    """A program of ``nodes`` operators, each on recent values, so that memory is used again."""
    rng = random.Random(seed)
    type_ = f"Tensor[({size}, {size}), float32]"
    names, lines = ["%x", "%y"], []
    for number in range(nodes):
        a, b = rng.choice(names[-5:]), rng.choice(names[-5:])
        call = rng.choice([f"{rng.choice(_BINARY)}({a}, {b})", f"{rng.choice(_UNARY)}({a})"])
        lines.append(f"let %v{number} = {call};")
        names.append(f"%v{number}")
    lines.append(f"add({names[-1]}, {names[-2]})")
    return f"def @main(%x: {type_}, %y: {type_}) {{\n" + "\n".join(lines) + "\n}"


def random_graph(rng: random.Random, size: int = 4, nodes: int = 7) -> str:
    """A program with inputs ``x``, ``y`` and the flag ``c``: operators, aliases, branches, copies.

    A third has annotations instead of branches, whose copies between devices stay where a result is
    an alias.
    """
    type_ = f"Tensor[({size}, {size}), float32]"
    names, lines, annotated = ["%x", "%y"], [], rng.random() < 0.33
    for number in range(rng.randint(1, nodes)):
        call, name = _random_call(rng, names, branches=not annotated), f"%v{number}"
        if annotated and rng.random() < 0.5:
            call = f'annotation.on_device({call}, device="sim:{rng.randrange(2)}")'
        lines.append(f"let {name} = {call};")
        names.append(name)
    results = [names[-1], *rng.choices(names, k=rng.randrange(3))]
    for number in range(rng.randrange(3)):
        lines.append(f"let %r{number} = {rng.choice(_ALIASES).format(rng.choice(names))};")
        results.append(f"%r{number}")
    body = results[0] if len(results) == 1 else f"({', '.join(results)})"
    return f"def @main(%x: {type_}, %y: {type_}, %c: bool) {{\n" + "\n".join((*lines, body)) + "\n}"


def _random_call(rng: random.Random, names: list[str], *, branches: bool) -> str:
    a, b = rng.choices(names[-4:], k=2)
    one, other = f"{rng.choice(_BINARY)}({a}, {b})", f"{rng.choice(_UNARY)}({a})"
    chosen = [f"if (%c) {{ {one} }} else {{ {b} }}", f"if (%c) {{ {other} }} else {{ {one} }}"]
    return rng.choice([one, one, other, other, f"copy({a})", *(chosen if branches else [])])
