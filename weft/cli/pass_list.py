"""What ``weft passes`` prints: pipelines, and the passes and rules that settings may name."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import asdict

import click

import weft.op
import weft.transform  # noqa: F401 - registers the passes
from weft.cli.common import print_json, print_table
from weft.codegen import backend_of
from weft.compiler.options import CompileOptions
from weft.compiler.phases import Phase
from weft.compiler.pipeline import phases_of
from weft.ir import PASSES, Pass
from weft.ir.passes import FACTS, option_text, providers_of
from weft.ir.rewrite.rules import REGISTERED_RULES
from weft.support.dataclass import dataclass
from weft.support.plugins import load_plugins
from weft.tir.transform.registered import tir_pass_name, with_insertions
from weft.transform.rules import SIMPLIFICATIONS


@dataclass(frozen=True, slots=True)
class PassFacts:
    """A pass: its options with their defaults, the phases that run it, and its docstring."""

    name: str
    options: dict[str, str]
    phases: tuple[str, ...]
    depends: tuple[str, ...]
    provides: tuple[str, ...]
    doc: str

    @staticmethod
    def of(kind: type[Pass], phases: Sequence[Phase]) -> PassFacts:
        fields = {f.name: "required" if f.default is dataclasses.MISSING else option_text(f.default)
                  for f in dataclasses.fields(kind)}
        runs = tuple(phase.name for phase in phases for p in phase.passes if type(p) is kind)
        return PassFacts(kind.name, fields, tuple(dict.fromkeys(runs)), kind.depends,
                         kind.provides, inspect.getdoc(kind) or "")

    @property
    def summary(self) -> str:
        """The first sentence of the docstring."""
        return " ".join(self.doc.partition("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def print_passes(name: str | None, target: str | None, *, as_json: bool) -> None:
    """All passes and rules, or the pass ``name``."""
    load_plugins()
    options = CompileOptions.make(target)
    phases = phases_of(options)
    if name is not None:
        _describe(PassFacts.of(PASSES.get(name), phases), as_json=as_json)
        return
    passes = [PassFacts.of(PASSES.get(known), phases) for known in PASSES]
    rules = [*map(REGISTERED_RULES.get, REGISTERED_RULES), *SIMPLIFICATIONS]
    tir_passes = with_insertions(backend_of(options.target).loop_passes,
                                 options.extensions.tir_passes)
    lists = {"tir_passes": [tir_pass_name(p) for p in tir_passes],
             "rules": [rule.name for rule in rules]}
    if as_json:
        print_json({"phases": {p.name: list(map(str, p.passes)) for p in phases},
                    "passes": list(map(asdict, passes)), **lists})
        return
    click.echo("\n".join(_phase_lines(phases)))
    print_table("\npasses, by name", ("name", "phases", "summary"),
                [(p.name, ", ".join(p.phases), p.summary) for p in passes])
    click.echo("\ntir passes of a kernel, in order\n" + _indented(lists["tir_passes"]))
    click.echo("\nrewrite rules of simplify_expr, in order\n" + _indented(lists["rules"]))


def _phase_lines(phases: Sequence[Phase]) -> Iterator[str]:
    yield "phases of weft.compile, in order"
    for phase in phases:
        yield f"  {phase.name}"
        yield from (f"    {pass_}" for pass_ in phase.passes)


def _indented(names: Sequence[str]) -> str:
    return "\n".join(f"  {name}" for name in names)


def _describe(facts: PassFacts, *, as_json: bool) -> None:
    if as_json:
        print_json(asdict(facts))
        return
    options = ", ".join(f"{name}={value}" for name, value in facts.options.items()) or "none"
    lines = [facts.name, f"  options: {options}", f"  phases: {', '.join(facts.phases) or 'none'}"]
    lines += [f"  needs: a program {_fact(name)} ({', '.join(providers_of(name)) or 'no pass'})"
              for name in facts.depends]
    lines += [f"  provides: a program {_fact(name)}" for name in facts.provides]
    click.echo("\n".join(lines) + f"\n\n{facts.doc}")


def _fact(name: str) -> str:
    return FACTS.get(name).doc if name in FACTS else f"with the attribute {name!r}"
