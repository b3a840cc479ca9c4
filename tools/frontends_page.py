"""Writes the table of docs/frontends.md: what each front end reads of its format's operators.

``python -m tools.frontends_page`` brings it up to date; it needs onnx, torch and tflite. The rows
come from the tables of converters and of reasons, so a converter that is added is counted.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from weft.support.dataclass import dataclass

PAGE = Path(__file__).parents[1] / "docs" / "frontends.md"
BEGIN, END = "<!-- operators: begin -->\n", "<!-- operators: end -->\n"
_FEW = 8
_HEAD = """\
| operators of | in all | converted | decomposed | refused, with the reason | not read |
|---|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Row:
    """The operators of one specification: what becomes of each, and which have no answer."""

    name: str
    converted: int
    decomposed: int = 0
    refused: int = 0
    missing: tuple[str, ...] = ()
    is_open: bool = False  # whether nothing that is installed lists the specification

    def text(self) -> str:
        whole = self.converted + self.decomposed + self.refused + len(self.missing)
        rest = ", ".join(_grouped(self.missing)) or "–"
        return (f"| {self.name} | {'–' if self.is_open else whole} | {self.converted} "
                f"| {self.decomposed or '–'} | {self.refused or '–'} | {rest} |\n")


def _grouped(names: Iterable[str]) -> Iterator[str]:
    """The names, those of a large family (``STABLEHLO_ABS``, ..) as one, with their number."""
    plain = [name.rpartition("::")[2] for name in names]
    families = Counter(name.partition("_")[0] for name in plain)
    large = {family: count for family, count in families.items() if count > _FEW}
    yield from (f"{family}_* ({count})" for family, count in large.items())
    yield from (name for name in plain if name.partition("_")[0] not in large)


def row(name: str, operators: Iterable[str], converted: Callable[[str], object],
        refused: Mapping[str, str], decomposed: Iterable[str] = ()) -> Row:
    """The row of a specification that lists its ``operators``."""
    every = sorted(set(operators))
    taken = {one for one in every if converted(one)}
    left = set(every) - taken
    made = left & set(decomposed)
    told = {one for one in left - made if refused.get(one)}
    return Row(name, len(taken), len(made), len(told), tuple(sorted(left - made - told)))


def onnx_rows() -> Iterator[Row]:
    """The newest operators of ONNX's domains; functions stand for others."""
    import onnx

    table = _converters("weft.frontend.onnx")
    for domain in ("", "ai.onnx.ml", "ai.onnx.preview.training"):
        newest = onnx.defs.get_all_schemas()
        schemas = [s for s in newest if s.domain == domain and not s.deprecated]
        start = f"{domain}::" if domain else ""
        yield row(f"ONNX, {domain or 'ai.onnx'}", (start + s.name for s in schemas), table.find, {},
                  (start + s.name for s in schemas
                   if s.has_function or s.has_context_dependent_function))


def torch_rows() -> Iterator[Row]:
    """The core set of ATen and the prims of torch."""
    from weft.frontend.torch.coverage import covered

    found = {one.name: one.how for one in covered()}
    for title, start in (("torch, core ATen", "aten."), ("torch, prims", "prims.")):
        own = {name: how for name, how in found.items() if name.startswith(start)}
        yield row(title, own, lambda name, own=own: own[name] == "converter", own,
                  (name for name, how in own.items() if how == "decomposition"))


def stablehlo_rows() -> Iterator[Row]:
    """StableHLO, and CHLO, whose operations no installed package lists."""
    from tests.unit.frontend.stablehlo.jax_page import SPECIFIED
    from weft.frontend.stablehlo.refused import REFUSED

    names = set(_converters("weft.frontend.stablehlo").names())
    own = {name.removeprefix("stablehlo.") for name in names} | {"custom_call"}
    yield row("StableHLO", SPECIFIED, own.__contains__, REFUSED)
    yield Row("CHLO", sum(name.startswith("chlo.") for name in names), is_open=True)


def tflite_rows() -> Iterator[Row]:
    """The builtin operators of TensorFlow Lite."""
    from tflite.BuiltinOperator import BuiltinOperator

    from weft.frontend.tflite.refused import REFUSED

    names = [name for name, value in vars(BuiltinOperator).items()
             if isinstance(value, int) and name[0] != "_" and name != "CUSTOM"]
    yield row("TensorFlow Lite", names, _converters("weft.frontend.tflite").find, REFUSED)


def graphdef_rows() -> Iterator[Row]:
    """TensorFlow's graphs, whose operators no installed package lists."""
    yield Row("TensorFlow, GraphDef", len(_converters("weft.compat.graphdef").names()),
              is_open=True)


def checkpoint_rows() -> Iterator[Row]:
    """Checkpoints of language models, which have architectures instead of operators."""
    for title, module in (("GGUF, architectures", "weft.models.gguf.translate"),
                          ("Hugging Face, model types", "weft.models.transformers.families")):
        yield Row(title, len(importlib.import_module(module).FAMILIES), is_open=True)


ROWS = (onnx_rows, torch_rows, stablehlo_rows, tflite_rows, graphdef_rows, checkpoint_rows)


def _converters(package: str) -> Any:
    """The filled table of converters of a front end."""
    importlib.import_module(f"{package}.converters")
    return importlib.import_module(f"{package}.registry").CONVERTERS


def table() -> str:
    return _HEAD + "".join(one.text() for rows in ROWS for one in rows())


def with_table(page: str) -> str:
    """The page with the table of now."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
