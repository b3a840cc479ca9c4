"""Writes docs/onnx.md from the tables of the program.

``python -m tests.unit.frontend.onnx.onnx_page > docs/onnx.md`` brings the page up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import onnx

from weft.frontend.onnx import converters  # noqa: F401 - fills the table
from weft.frontend.onnx.checks import MIN_IR_VERSION, MIN_OPSET
from weft.frontend.onnx.registry import CONVERTERS, Converter
from weft.frontend.onnx.tensors import supported_dtypes

_INTRO = """\
# ONNX models

The tables of this page are written from the converters, and a test compares the two. `weft ops`
lists weft's own operators.

## Models

ONNX models of IR version {ir} and later, and ai.onnx opset {opset} and later, up to the newest
that the installed `onnx` package knows. Tensors of {dtypes}.

A model's own functions are expanded. `If`, `Loop` and `Scan` become control flow of the program;
where the condition or the number of rounds is known, the branch is chosen and short loops are
unrolled. Sequences have lengths that are known at import, and so has an optional value whether it
is there: `from_onnx(model, inputs={{"xs": [(3, 2), (1, 2)]}})`. Not read: strings, sparse
initializers, maps but those of `ZipMap`, which stay arrays, operators of other domains but those
listed. An operator can be added from outside weft ([add_converter.md](tutorials/add_converter.md)).
An unsupported model is refused with the list of all that is missing.

## Sizes

Named dimensions are symbols, and unnamed ones get names of their own (`x_dim0`); one program runs
at all their sizes. `inputs` gives other names, numbers, bounds and expressions:

```python
weft.compile("decoder.onnx", inputs={{
    "ids": ("1 <= batch <= 64", "seq <= 2048"),
    "mask": ("batch", "past + seq"),
}})
```

A bound is a comparison of a name with numbers; `seq % 8 == 0` demands a multiple, `and` joins both.
What is given for a name in one input holds in all inputs that use the name; contradictions are
refused. Where a model's own tables bound a size (512 positions), the bound is found; where a node
needs a size to be the sum of others (a mask of past and new positions), it is this sum. Shape
arithmetic (`Shape`, `Gather`, `Concat`, `Mul`, `Where`, ...) is evaluated on symbols, and sizes
are computed as data where nodes need them. Where symbols do not decide a shape, the model is
compiled for each set of sizes that it meets.

## ONNX operators

An operator is listed once for each opset in which its conversion changes. Attributes that are not
named are refused. Inputs that decide the shape of a result (the target of `Reshape`, the bounds of
`Slice`, axes, amounts of padding) must be constants, or computed from constants and shapes.

| operator | from opset | attributes | restrictions |
|---|---|---|---|
"""

_FUNCTIONS = """
## Operators by their definition

These have no conversion of their own: ONNX defines them by others, and that definition is used.

{names}
"""


def render() -> str:
    """The whole page."""
    intro = _INTRO.format(ir=MIN_IR_VERSION, opset=MIN_OPSET, dtypes=", ".join(supported_dtypes()))
    names = ", ".join(_defined_by_functions())
    return intro + "".join(_onnx_rows()) + _FUNCTIONS.format(names=names)


def _onnx_rows() -> Iterator[str]:
    for name in CONVERTERS.names():
        for converter in CONVERTERS.versions(name):
            since = max(converter.since, _first_opset(name))
            attributes = ", ".join(sorted(converter.attributes)) or "–"
            yield f"| {name} | {since} | {attributes} | {_restrictions(converter)} |\n"


def _first_opset(name: str) -> int:
    """The first version of its domain that has the operator, and that is read."""
    domain, _, plain = name.rpartition("::")
    schemas = onnx.defs.get_all_schemas_with_history()
    found = [s.since_version for s in schemas if s.name == plain and s.domain == domain]
    first = min(found, default=1)  # of onnxruntime's own operators onnx knows nothing
    return first if domain else max(first, MIN_OPSET)


def _restrictions(converter: Converter) -> str:
    parts = [
        f"{name} = {' or '.join(str(v) for v in values)}"
        for name, values in sorted(converter.only.items())
    ]
    return "; ".join(parts) or "–"


def _defined_by_functions() -> list[str]:
    """Operators of ai.onnx without a converter whose newest version has a function body."""
    newest = [s for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated]
    return sorted(
        s.name
        for s in newest
        if (s.has_function or s.has_context_dependent_function) and not CONVERTERS.versions(s.name)
    )


if __name__ == "__main__":
    sys.stdout.write(render())
