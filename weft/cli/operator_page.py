"""The Markdown page of one operator from its record, for docs/operators and ``weft ops NAME``."""

from __future__ import annotations

import functools
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from weft.compiler.opcheck import random_arguments, typed_call, variables_of
from weft.ir import Call, Case, Function, IRModule, Op, OpPattern, TupleType, Type, infer_type
from weft.ir.dynamic import depends_on_data
from weft.strategy import implementations
from weft.target import Target

_TARGETS = ("llvm -mcpu=haswell", "llvm -mcpu=znver4")
_MOST_TYPES = 4
_FUSION = {
    OpPattern.ELEMWISE: "with all neighbours, elementwise",
    OpPattern.BROADCAST: "with all neighbours, with broadcasting",
    OpPattern.INJECTIVE: "with producers and consumers",
    OpPattern.COMM_REDUCE: "with its producers",
    OpPattern.OUT_FUSABLE: "with elementwise operators that follow it",
    OpPattern.TUPLE: "as a tuple",
    OpPattern.OPAQUE: "not fused",
}
Uses = Mapping[str, Mapping[str, Sequence[str]]]


def signature(op: Op) -> str:
    """``nn.softmax(x, axis=-1)``."""
    attributes = [f.name if f.default is MISSING else f"{f.name}={_value(f.default)}"
                  for f in fields(op.attrs_type)]
    return f"{op.name}({', '.join([*op.inputs, *attributes])})"


def page_of(op: Op, uses: Uses) -> str:
    """The page; ``uses`` has, by format and operator, the format's operators that convert to it."""
    sections = [
        f"# {op.name}", f"```text\n{signature(op)}\n```", op.doc, _attributes(op), _types(op),
        _meaning(op), _example(op), _facts(op, uses),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _attributes(op: Op) -> str:
    rows = []
    for field in fields(op.attrs_type):
        default = "required" if field.default is MISSING else f"`{_value(field.default)}`"
        expected = field.metadata.get("expected")
        text = "; ".join(filter(None, (field.metadata.get("doc"), expected)))
        kind = field.type if isinstance(field.type, str) else getattr(
            field.type, "__name__", str(field.type))
        rows.append(f"| `{field.name}` | {cell(kind)} | {default} | {cell(text)} |")
    head = "## Attributes\n\n| name | type | default | meaning |\n|---|---|---|---|\n"
    return head + "\n".join(rows) if rows else ""


def cell(text: str) -> str:
    """``text`` as a cell of a table in Markdown."""
    return text.replace("|", "\\|").replace("\n", " ")


def _types(op: Op) -> str:
    """The docstring of the relation, and its results for the operator's own cases."""
    words = inspect.getdoc(op.relation) or ""
    rows: dict[str, None] = {}
    for one in op.cases:
        call = typed_call(op, one, random_arguments(one))
        attributes = ", ".join(f"{k}={_value(v)}" for k, v in call.attrs.non_default_items())
        arguments = ", ".join(_type(a.checked_type) for a in call.args)
        rows[f"| {arguments} | {cell(attributes)} | {_type(call.checked_type)} |"] = None
    table = "\n".join(list(rows)[:_MOST_TYPES])
    if depends_on_data(op):
        words += "\n\nA `?` is a data-dependent size, which is known when the program runs."
    head = "| arguments | attributes | result |\n|---|---|---|\n"
    return "\n\n".join(filter(None, ("## Types", words.strip(), head + table)))


def _type(type_: Type | None) -> str:
    if isinstance(type_, TupleType):
        return f"({', '.join(map(_type, type_.fields))})"
    return f"`{str(type_).removeprefix('Tensor[').removesuffix(']')}`"


def _meaning(op: Op) -> str:
    if op.reference is None:
        return ""
    return f"## Meaning in NumPy\n\n```python\n{source_of(op.reference)}\n```"


def source_of(function: Callable[..., Any]) -> str:
    """The source of a reference function, followed by the values of its closure variables."""
    if isinstance(function, functools.partial):
        return _partial(function)
    if not inspect.isfunction(function):
        module = getattr(function, "__module__", None) or "numpy"
        return f"{module}.{getattr(function, '__name__', function)}"
    text = _lambda(function) if function.__name__ == "<lambda>" else textwrap.dedent(
        inspect.getsource(function)).rstrip()
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    notes = [f"# {name}: {_closed_over(cell.cell_contents)}" for name, cell in cells]
    return "\n".join([text, *notes])


def _partial(function: functools.partial[Any]) -> str:
    """The function's name with the bound arguments; its repr has an address, which varies."""
    bound = [*map(repr, function.args), *(f"{k}={v!r}" for k, v in function.keywords.items())]
    name = f"{function.func.__module__}.{function.func.__name__}"
    return f"functools.partial({', '.join([name, *bound])})"


def _closed_over(value: object) -> str:
    if callable(value):
        lines = source_of(value).splitlines()
        return lines[0] if len(lines) == 1 else "\n" + "\n".join(f"#     {line}" for line in lines)
    return repr(value)


def _lambda(function: Any) -> str:
    """The source of a lambda expression, cut out of its lines."""
    code = function.__code__
    spans = [((a, c), (b, d)) for a, b, c, d in code.co_positions()
             if a and b and c is not None and d]
    (top, left), (bottom, right) = min(s for s, _ in spans), max(e for _, e in spans)
    rows = inspect.findsource(function)[0][top - 1:bottom]
    rows[-1] = rows[-1].encode()[:right].decode()
    rows[0] = rows[0].encode()[left:].decode()
    body = " ".join(row.strip() for row in rows)
    return f"lambda {', '.join(inspect.signature(function).parameters)}: {body}"


def _example(op: Op) -> str:
    """A program of one case with data, compiled and run."""
    cases = sorted(op.cases, key=_size)
    if not cases:
        return ""
    one = next((c for c in cases if _size(c) > 1), cases[-1])
    arrays = random_arguments(one)
    module = infer_type(IRModule.from_expr(_function(typed_call(op, one, arrays))))
    inputs = list(_arguments(one, arrays))
    names = ", ".join(f"x{i}" for i in range(len(inputs)))
    lines = [
        "import numpy as np", "", "import weft", "",
        f'program = weft.parse("""\n{_program(module)}\n""")',
        *(["rng = np.random.default_rng(0)"] if any("rng." in a for a in inputs) else []),
        *(f"x{i} = {a}" for i, a in enumerate(inputs)),
        f"print(weft.compile(program)({names}))",
    ]
    return "## Example\n\n```python\n" + "\n".join(lines) + "\n```"


def _program(module: IRModule) -> str:
    """The text of a module without its version line."""
    return "\n".join(line for line in str(module).splitlines() if not line.startswith("#["))


def _size(one: Case) -> int:
    """The number of elements of all inputs together."""
    return sum(a.size for group in random_arguments(one) for a in _flat(group))


def _flat(group: Any) -> tuple[Any, ...]:
    return group if isinstance(group, tuple) else (group,)


def _function(call: Call) -> Function:
    return Function(variables_of(call), call)


def _arguments(one: Case, arrays: Sequence[Any]) -> Iterator[str]:
    """Python expressions for the inputs of a case: random in its bounds, or its literal arrays."""
    for spec, group in zip(one.inputs, arrays, strict=False):
        leaves = spec if isinstance(spec, list) else [spec]
        for leaf, array in zip(leaves, _flat(group), strict=True):
            if isinstance(leaf, np.ndarray | np.generic):
                yield f"np.array({array.tolist()}, {array.dtype.name!r})"
            elif array.dtype.kind == "f":
                bounds = f"{one.low}, {one.high}, {array.shape}"
                yield f"rng.uniform({bounds}).astype({array.dtype.name!r})"
            elif array.dtype.kind == "b":
                yield f"rng.integers(0, 2, {array.shape}).astype('bool')"
            else:
                low, high = int(one.low), int(one.high) + 1
                yield f"rng.integers({low}, {high}, {array.shape}).astype({array.dtype.name!r})"


def _facts(op: Op, uses: Uses) -> str:
    rows = [("fuses", _FUSION[op.pattern]), ("gradient", _gradient(op)),
            ("layouts", "the layout of its arguments" if op.hook("layout") else "unblocked")]
    rows += [(f"trait {name}", value) for name, value in op.traits.declared()]
    rows += [(f"on {name}", ", ".join(found)) for name, found in _implementations(op).items()]
    rows += [(f"used for {form}", ", ".join(served[op.name])) for form, served in uses.items()
             if op.name in served]
    table = "\n".join(f"| {name} | {cell(text)} |" for name, text in rows)
    return f"## Facts\n\n| | |\n|---|---|\n{table}"


def _gradient(op: Op) -> str:
    expanded = "of the operators that it expands to"
    if op.hook("expansion"):
        return expanded
    if op.gradient_rule is not None:
        return "yes"
    if op.hook("decomposition"):
        return expanded
    if op.no_gradient_reason is not None:
        return f"none: {op.no_gradient_reason}"
    return "zero" if op.traits.has_zero_gradient else "no"


def _implementations(op: Op) -> dict[str, list[str]]:
    """The implementations offered for the operator's cases, by target kind."""
    found: dict[str, list[str]] = {}
    if depends_on_data(op):
        return found
    for target in map(Target.of, _TARGETS):
        names = found.setdefault(target.kind, [])
        for one in op.cases:
            call = typed_call(op, one, random_arguments(one))
            names += [i.name for i in implementations(call, target) if i.name not in names]
    return found
