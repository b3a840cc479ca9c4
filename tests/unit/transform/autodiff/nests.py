"""Random programs with control flow, closures, data and detachment, and nests of transformations.

Each statement stands as text of the IR and as Python over torch, so that torch's gradients, which
record what Python does, are the truth. Programs map ``x`` and ``y``, vectors of two float64, and
``n``, a number of steps, to a vector of two; so does every transformation here. Values stay small
by ``tanh``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from tests.unit.transform.helpers import parse_program
from tests.unit.transform.random_language import HEADER, I, V
from weft import op
from weft.ir.expr import Expr, Function, TupleGetItem, const
from weft.ir.module import IRModule
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import substitute

# A pair for each statement: text over values a, b, c in scope, and the Python of the same; N is a
# fresh number.
STATEMENTS = [
    ("let %vN = tanh(add(%a, %b));", "vN = tanh(a + b)"),
    ("let %vN = multiply(%a, tanh(%b));", "vN = a * tanh(b)"),
    ("let %vN = multiply(annotation.stop_gradient(tanh(%a)), add(%b, %a));",
     "vN = tanh(a).detach() * (b + a)"),
    ("let %vN = if (less(sum(%a), sum(%b))) { multiply(%a, %c) } else { tanh(%b) };",
     "vN = a * c if a.sum() < b.sum() else tanh(b)"),
    ("let %vN = if (less(%n, 2)) { multiply(%a, annotation.stop_gradient(%c)) } else { tanh(%b) };",
     "vN = a * c.detach() if n < 2 else tanh(b)"),
    ("let %fN = fn (%p: V) -> V { tanh(multiply(%p, %b)) }; let %vN = add(%fN(%a), %fN(%c));",
     "fN = lambda p: tanh(p * b); vN = fN(a) + fN(c)"),
    (("let %dN = annotation.stop_gradient(%a); let %fN = fn (%p: V) -> V { multiply(%p, add(%dN, "
     "%a)) }; let %vN = tanh(%fN(%fN(%b)));"),
     "dN = a.detach(); fN = lambda p: p * (dN + a); vN = tanh(fN(fN(b)))"),
    (("let %lN = fn (%k: I, %s: V) -> V { if (less(%k, %n)) { %lN(add(%k, 1), "
     "tanh(multiply(%s, %b))) } else { add(%s, %c) } }; let %vN = %lN(0, %a);"),
     "lN = lambda k, s: lN(k + 1, tanh(s * b)) if k < n else s + c; vN = lN(0, a)"),
    (("let %lN = fn (%k: I, %s: V) -> V { if (less(%k, %n)) { %lN(add(%k, 1), tanh(multiply("
     "annotation.stop_gradient(%s), add(%s, %b)))) } else { %s } }; let %vN = %lN(0, %a);"),
     "lN = lambda k, s: lN(k + 1, tanh(s.detach() * (s + b))) if k < n else s; vN = lN(0, a)"),
    (("let %lN = fn (%k: I, %s: V) -> V { if (logical_and(less(%k, 4), less(sum(%s), 1.5f64))) { "
     "%lN(add(%k, 1), add(%s, tanh(multiply(%b, %b)))) } else { tanh(%s) } }; "
     "let %vN = %lN(0, %a);"),
     ("lN = lambda k, s: lN(k + 1, s + tanh(b * b)) if k < 4 and s.sum() < 1.5 else tanh(s); "
     "vN = lN(0, a)")),
    (("let %rN = fn (%k: I, %s: V) -> V { if (less_equal(%k, 0)) { %s } else { tanh(add("
     "%rN(subtract(%k, 1), multiply(%s, %b)), %s)) } }; let %vN = %rN(%n, %a);"),
     "rN = lambda k, s: s if k <= 0 else tanh(rN(k - 1, s * b) + s); vN = rN(n, a)"),
    (("let %vN = @foldl(fn (%s: V, %e: V) { tanh(add(%s, multiply(%e, %b))) }, %a, "
     "Cons(%a, Cons(%c, Nil())));"),
     "vN = tanh(tanh(a + a * b) + c * b)"),
    (("let %mN = @map(fn (%e: V) { multiply(%e, %b) }, Cons(%a, Cons(%b, Cons(%c, Nil())))); "
     "let %vN = @foldr(fn (%e: V, %s: V) { tanh(add(%s, %e)) }, %c, @rev(%mN));"),
     "vN = tanh(tanh(tanh(c + a * b) + b * b) + c * b)"),
    (("let %hN = if (less(sum(%a), sum(%b))) { fn (%p: V) -> V { multiply(%p, %c) } } else { "
     "fn (%p: V) -> V { tanh(add(%p, %a)) } }; let %vN = @iterate(%hN, %n)(%b);"),
     ("hN = (lambda p: p * c) if a.sum() < b.sum() else (lambda p: tanh(p + a)); "
     "vN = iterate(hN, n)(b)")),
    (("let %hN = if (less(%n, 2)) { fn (%p: V) -> V { multiply(%p, %c) } } else { "
     "fn (%p: V) -> V { tanh(add(%p, %a)) } }; let %vN = add(%hN(%b), %hN(%a));"),
     "hN = (lambda p: p * c) if n < 2 else (lambda p: tanh(p + a)); vN = hN(b) + hN(a)"),
    (("let %eN = if (less(sum(%a), sum(%c))) { Leaf(%b) } else { Scaled(%c, Leaf(tanh(%a))) }; "
     "let %vN = @value(%eN, %a);"),
     "vN = b if a.sum() < c.sum() else c * tanh(a)"),
    (("let %vN = match (Cons(%a, Cons(%b, Nil()))) { Cons(%p, Cons(%q, _)) => { multiply(%p, %q)}, "
     "_ => { %c } };"),
     "vN = a * b"),
    ("let %gN = @counter(%a); let %vN = tanh(add(%gN(%b), %gN(%c)));",
     "uN = tanh(a * b); vN = tanh((uN + a) + (tanh(uN * c) + uN))"),
    ("let %vN = @ping(%n, %a, multiply(%b, %c));", "vN = ping(n, a, b * c)"),
    ("let %tN = (%a, (tanh(%b), %n)); let %vN = multiply(%tN.0, %tN.1.0);", "vN = a * tanh(b)"),
]
WEIGHTS = np.array([[0.7], [-0.4], [1.1]])
PLAIN = [pair for pair in STATEMENTS if "stop_gradient" not in pair[0]]


def program(rng: random.Random, most: int = 4, statements: Any = STATEMENTS) -> tuple[str, str]:
    """Text and Python of a program ``(x, y, n) -> vector`` of up to ``most`` statements."""
    names, lines, code = ["x", "y"], [], []
    for number in range(rng.randint(1, most)):
        text, python = rng.choice(statements)
        picked = {letter: rng.choice(names) for letter in "abc"}
        lines.append(_filled(text, number, picked, "%"))
        code.append(_filled(python, number, picked, ""))
        names.append(f"v{number}")
    last, before = names[-1], names[-2]
    lines.append(f"add(%{last}, multiply(%{before}, %x))")
    body = "\n  ".join(lines)
    text = f"{HEADER}def @main(%x: {V}, %y: {V}, %n: {I}) -> {V} {{\n  {body}\n}}"
    return text, "\n".join([*code, f"result = {last} + {before} * x"])


def _filled(statement: str, number: int, picked: dict[str, str], mark: str) -> str:
    statement = re.sub(rf"({mark}\b[a-z])N\b", rf"\g<1>{number}", statement)
    if mark:
        statement = re.sub(r"\bI\b", I, re.sub(r"\bV\b", V, statement))
    return re.sub(rf"{mark}\b([abc])\b", lambda m: f"{mark}{picked[m[1]]}", statement)


# -- transformations of programs -----------------------------------------------------------------


def _main(mod: IRModule, params: Any, body: Expr) -> IRModule:
    fn = mod["main"]
    return infer_type(mod.with_function("main", Function(tuple(params), body, span=fn.span)))


def _summed(mod: IRModule, axis: int) -> IRModule:
    """The sums along an axis of a matrix."""
    main = mod["main"]
    return _main(mod, main.params, op.sum(main.body, axis=(axis,)))


def gradient(mod: IRModule) -> IRModule:
    return weft.grad(mod, 0, cotangent="ones", unused="zeros")


def forward_jacobian(mod: IRModule) -> IRModule:
    return _summed(weft.jacobian(mod, 0, mode="forward"), 1)


def reverse_jacobian(mod: IRModule) -> IRModule:
    return _summed(weft.jacobian(mod, 0, mode="reverse"), 1)


def hessian(mod: IRModule) -> IRModule:
    main = mod["main"]
    return _summed(weft.hessian(_main(mod, main.params, op.sum(main.body)), 0), 1)


def tangent(mod: IRModule) -> IRModule:
    """The product of the Jacobian by ``x`` with the vector ``tanh(y)``."""
    after = weft.jvp(mod, 0)
    x, y, n, dx = after["main"].params
    body = substitute(after["main"].body, {dx: op.tanh(y)})
    return _main(after, (x, y, n), TupleGetItem(body, 1))


def batch(mod: IRModule) -> IRModule:
    """The sum of the results for three examples of ``x``."""
    after = weft.vmap(mod, (0, None, None), axis_size=3)
    rows, y, n = after["main"].params
    x = mod["main"].params[0].replace()
    body = substitute(after["main"].body, {rows: op.multiply(const(WEIGHTS), x)})
    return _main(after, (x, y, n), op.sum(body, axis=(0,)))


def batch_of_steps(mod: IRModule) -> IRModule:
    """The sum of the results for other numbers of steps, with another ``y`` each."""
    after = weft.vmap(mod, (None, 0, 0), axis_size=3)
    x, rows, steps = after["main"].params
    _, y, n = (p.replace() for p in mod["main"].params)
    more = const(np.array([0, 2, 1], "int32"))
    body = substitute(after["main"].body, {
        rows: op.multiply(const(WEIGHTS), y), steps: op.add(n, more)})
    return _main(after, (x, y, n), op.sum(body, axis=(0,)))


TRANSFORMATIONS: dict[str, Callable[[IRModule], IRModule]] = {
    f.__name__: f for f in (gradient, forward_jacobian, reverse_jacobian, hessian, tangent, batch,
                            batch_of_steps)}
_DEAR = {"hessian", "forward_jacobian", "reverse_jacobian"}


def nest(rng: random.Random) -> list[str]:
    """One to three transformations, the innermost first, one dear one at most."""
    found: list[str] = []
    for _ in range(rng.randint(1, 3)):
        cheap = [t for t in TRANSFORMATIONS if t not in _DEAR]
        found.append(rng.choice(cheap if set(found) & _DEAR else list(TRANSFORMATIONS)))
    return found


def transformed(text: str, names: list[str]) -> IRModule:
    mod = parse_program(text)
    for name in names:
        mod = TRANSFORMATIONS[name](mod)
    return mod


# -- the truth -----------------------------------------------------------------------------------


def torch_function(python: str) -> Callable[..., Any]:
    """The program over torch's tensors; what it does is recorded by torch."""
    import torch

    code = compile(python, "<nest>", "exec")

    def ping(n: int, x: Any, y: Any) -> Any:
        return x * y if n <= 0 else torch.tanh(pong(n - 1, torch.tanh(x + y), x))

    def pong(n: int, x: Any, y: Any) -> Any:
        return y if n <= 0 else ping(n - 1, y, x) + y

    def iterate(f: Any, n: int) -> Any:
        return (lambda p: p) if n <= 0 else lambda p: f(iterate(f, n - 1)(p))

    def run(x: Any, y: Any, n: int) -> Any:
        scope = {"tanh": torch.tanh, "ping": ping, "iterate": iterate, "x": x, "y": y, "n": n}
        exec(code, scope)  # the program of the generator
        return scope["result"]

    return run


def torch_nest(function: Callable[..., Any], names: list[str]) -> Callable[..., Any]:
    """The transformations over torch's recorded gradients, without its ``vmap``."""
    for name in names:
        function = _TORCH[name](function)
    return function


def _slope(y: Any, x: Any) -> Any:
    import torch

    if not y.requires_grad:
        return torch.zeros_like(x)
    (found,) = torch.autograd.grad(y, x, create_graph=True, allow_unused=True)
    return torch.zeros_like(x) if found is None else found


def _fresh(x: Any) -> Any:
    return x * 1 if x.requires_grad else x.clone().requires_grad_()


def _torch_gradient(f: Any) -> Any:
    def run(x: Any, y: Any, n: int) -> Any:
        x = _fresh(x)
        return _slope(f(x, y, n).sum(), x)
    return run


def _torch_jacobian(f: Any) -> Any:
    def run(x: Any, y: Any, n: int) -> Any:
        import torch
        x = _fresh(x)
        return torch.stack([_slope(one, x).sum() for one in f(x, y, n)])
    return run


def _torch_hessian(f: Any) -> Any:
    return _torch_jacobian(_torch_gradient(f))


def _torch_tangent(f: Any) -> Any:
    def run(x: Any, y: Any, n: int) -> Any:
        import torch
        x = _fresh(x)
        direction = torch.tanh(y)
        return torch.stack([(_slope(one, x) * direction).sum() for one in f(x, y, n)])
    return run


def _torch_batch(f: Any) -> Any:
    return lambda x, y, n: sum(f(x * float(w), y, n) for w in WEIGHTS[:, 0])


def _torch_batch_of_steps(f: Any) -> Any:
    return lambda x, y, n: sum(f(x, y * float(w), n + k)
                               for w, k in zip(WEIGHTS[:, 0], (0, 2, 1), strict=True))


_TORCH = {"gradient": _torch_gradient, "forward_jacobian": _torch_jacobian,
          "reverse_jacobian": _torch_jacobian, "hessian": _torch_hessian,
          "tangent": _torch_tangent, "batch": _torch_batch,
          "batch_of_steps": _torch_batch_of_steps}
