"""Show which kernels a change of the compiler changes: ``python -m tools.replay``.

A restructuring must leave the generated code as it is. ``record FILE`` compiles a fixed corpus (the
kernels and models of ``benchmarks/`` and the test cases of all operators, for several CPUs) as far
as LLVM IR and writes one digest per kernel; ``compare BEFORE AFTER`` lists the kernels whose digest
differs. Names of values, labels and symbols do not count.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

import weft.op  # noqa: F401 - registers the operators of the corpus
from benchmarks.attention_kernels import ATTENTIONS
from benchmarks.contraction_kernels import CONTRACTIONS
from benchmarks.kernel_models import KERNELS
from benchmarks.models import MODELS
from weft import ir
from weft.compiler.options import CompileOptions
from weft.compiler.stages import Stages
from weft.frontend.source import open_source
from weft.support.errors import WeftError
from weft.support.progress import task

TARGETS = (
    "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver5",
    "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell",
)
_NAME = re.compile(r'[%@#!][\w.$]+|[%@]"[^"]*"')
_LABEL = re.compile(r"^([\w.$]+):", re.MULTILINE)
_COMMENT = re.compile(r";.*$", re.MULTILINE)
_SOURCE = re.compile(r"^source_filename.*$", re.MULTILINE)  # a kernel is named by its content


def corpus() -> Iterator[tuple[str, Any]]:
    """Name and model of every entry."""
    for kernel in (*CONTRACTIONS, *ATTENTIONS, *KERNELS):
        yield kernel.name, kernel.build()
    for name, build in MODELS.items():
        yield name, build()
    yield from _operator_cases()


def _operator_cases() -> Iterator[tuple[str, ir.IRModule]]:
    """The first two test cases of every operator, as programs of one call."""
    for name in sorted(ir.OPS):
        record = ir.OPS.get(name)
        for number, case in enumerate(record.cases[:2]):
            program = _program(record, case)
            if program is not None:
                yield f"{name}#{number}", program


def _program(record: Any, case: Any) -> ir.IRModule | None:
    """One call with a parameter per input; ``None`` where an input is not a plain tensor."""
    dtypes = [case.dtypes[min(i, len(case.dtypes) - 1)] for i in range(len(case.inputs))]
    params = []
    for i, (value, wanted) in enumerate(zip(case.inputs, dtypes, strict=True)):
        is_array = isinstance(value, np.ndarray)
        shape = value.shape if is_array else value
        if not isinstance(shape, tuple) or not all(isinstance(size, int) for size in shape):
            return None
        dtype = str(value.dtype) if is_array else wanted
        params.append(ir.Var(f"x{i}", ir.TensorType(shape, ir.DType.of(dtype))))
    try:
        return ir.infer_type(ir.IRModule({"main": ir.Function(
            tuple(params), record(*params, **case.attrs))}))
    except WeftError:
        return None


def digests(model: Any, target: str) -> list[tuple[str, str]]:
    """Header (operators and implementation) and digest of every kernel of a model."""
    options = CompileOptions.make(target)
    text = Stages(open_source(model, None, options), options).as_text("llvm")
    kernels = re.split(r"^; (?=[^\n]*: [^\n]*\n)", text, flags=re.MULTILINE)[1:]
    return [(kernel.partition("\n")[0], _digest(kernel.partition("\n")[2])) for kernel in kernels]


def _digest(text: str) -> str:
    """Of LLVM IR whose names are numbers in the order in which they come."""
    names: dict[str, str] = {}

    def number(match: re.Match[str]) -> str:
        name = match.group(0).replace('"', "")
        if name.startswith("@llvm.") or name[0] in "#!":
            return name
        return names.setdefault(name[1:], f"v{len(names)}")

    body = _SOURCE.sub("", _COMMENT.sub("", text))
    body = _LABEL.sub(lambda m: names.setdefault(m.group(1), f"v{len(names)}") + ":",
                      _NAME.sub(number, body))
    return hashlib.sha256(body.encode()).hexdigest()[:16]


@click.group()
def main() -> None:
    """Show which kernels a change of the compiler changes."""


@main.command()
@click.argument("file", type=Path)
@click.option("--only", default="", help="Part of the names of entries.")
def record(file: Path, only: str) -> None:
    """Write the digests of the corpus as it compiles now."""
    entries = [(name, model) for name, model in corpus() if only in name]
    found: dict[str, list[tuple[str, str]]] = {}
    start = time.monotonic()
    with task("compiling the corpus", len(entries) * len(TARGETS)) as progress:
        for name, model in entries:
            for target in TARGETS:
                key = f"{name} on {target.partition('-mcpu=')[2]}"
                try:
                    found[key] = digests(model, target)
                except WeftError as error:
                    found[key] = [(f"{type(error).__name__}: {error}".splitlines()[0], "")]
                progress.advance(key)
    file.write_text(json.dumps(found, indent=1), encoding="utf-8")
    kernels = sum(map(len, found.values()))
    click.echo(f"{kernels} kernels of {len(found)} programs in {time.monotonic() - start:.0f} s")


@main.command()
@click.argument("before", type=Path)
@click.argument("after", type=Path)
def compare(before: Path, after: Path) -> None:
    """List what differs; status 1 where code does."""
    old, new = (json.loads(file.read_text(encoding="utf-8")) for file in (before, after))
    different = renamed = 0
    for key in sorted(old.keys() & new.keys()):
        if [d for _, d in old[key]] != [d for _, d in new[key]]:
            different += 1
            click.echo(f"code differs: {key}")
            headers = [{header for header, _ in entries[key]} for entries in (old, new)]
            for side, own in zip(("before", "after"), headers, strict=True):
                for header in sorted(own - (headers[0] & headers[1])):
                    click.echo(f"    {side}: {header}")
        elif old[key] != new[key]:
            renamed += 1
    for key in sorted(old.keys() ^ new.keys()):
        click.echo(f"only {'before' if key in old else 'after'}: {key}")
    click.echo(f"{different} of {len(old)} programs differ in code, {renamed} in names alone")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
