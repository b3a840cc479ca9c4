"""What ``weft inspect FILE.weft`` prints: all that an artifact holds and needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from weft.cli.common import print_table
from weft.runtime.artifact_contents import HEAD, EntryPoint
from weft.runtime.artifact_file import ArtifactFile
from weft.runtime.artifact_loader import check_loader, errors_named
from weft.runtime.artifact_signatures import is_right, signatures_of
from weft.runtime.launchers import check_machine
from weft.runtime.manifest import Manifest
from weft.support.errors import ArtifactError, MissingToolError

_BASIC = frozenset(["bool", "float16", "float32", "float64", "complex64", "complex128"])


def print_artifact(path: Path) -> None:
    """Print entry points, native code with what it needs, portable forms, and members.

    Every member is verified. Raises ``ArtifactError`` for a damaged file.
    """
    with errors_named(path):
        file = ArtifactFile(path)
        contents = file.contents
        written = f"written by weft {contents.weft_version}" if contents.weft_version else ""
        click.echo(f"weft artifact, format {contents.version}, {written}, "
                   f"{path.stat().st_size / 1e6:.2f} MB")
        if contents.kind:
            facts = ", ".join(f"{name} {value}" for name, value in contents.facts.items()
                              if isinstance(value, int))
            click.echo(f"a {contents.kind}: {facts}")
        for name, entry in contents.entries.items():
            _print_entry(file, name, entry)
        _print_signatures(file)
        rows = [(name, size) for name, (_, size) in sorted(file.extents.items())]
        print_table("\nmembers", ("name", "bytes"), rows)
        for name in contents.checksums:
            if name != HEAD:
                file.read(name)
    click.echo("all checksums are right")


def _print_signatures(file: ArtifactFile) -> None:
    for key, signature in signatures_of(file).items():
        try:
            found = "right" if is_right(file, key, signature) else "not one of this file"
        except MissingToolError as error:
            found = f"not checked: {error.help}"
        click.echo(f"signed by {key}: {found}")


def _print_entry(file: ArtifactFile, name: str, entry: EntryPoint) -> None:
    programs = {folder: file.manifest(folder) for folder in entry.programs}
    shown = file.manifest_at(entry.signature) if entry.signature else next(
        iter(programs.values()), None)
    click.echo(f"\nentry point {name}")
    if shown is not None:
        for kind, specs in (("input ", shown.inputs), ("output", shown.outputs),
                            ("state ", shown.states)):
            for spec in specs:
                click.echo(f"  {kind} {spec}")
        click.echo(f"  packages: {', '.join(_packages(shown))}")
    for folder, manifest in programs.items():
        _print_native(file, folder, manifest, is_per_shape=bool(entry.signature))
    if entry.portable is not None:
        click.echo("  portable form: " + _portable_text(file, entry))


def _print_native(file: ArtifactFile, folder: str, manifest: Manifest, *, is_per_shape: bool
                  ) -> None:
    target = manifest.target
    needs = ", ".join(target.features) or "no optional instructions"
    size = len(file.code(folder))
    click.echo(f"  native code {folder or 'of the file'}: {size / 1e3:.1f} kB for {target.cpu}")
    if is_per_shape:
        click.echo("    for " + ", ".join(map(str, manifest.inputs)))
    click.echo(f"    needs: {target.triple}" + (f", {target.kind}" * (target.kind != "cpu"))
               + f", {needs}")
    click.echo(f"    this machine: {_fit(manifest)}")
    calls = manifest.steps if manifest.vm is None else manifest.vm.kernels
    arena = manifest.arena_bytes
    memory = f"{arena / 1e6:.2f} MB" if isinstance(arena, int) else "by the sizes of the inputs"
    click.echo(f"    {len(calls)} kernel calls, arena {memory}, threads "
               f"{manifest.threads or 'of the process'}, run by {manifest.launched_by}"
               + (", bytecode of the virtual machine" * (manifest.vm is not None)))


def _fit(manifest: Manifest) -> str:
    try:
        check_loader(manifest.target)
        check_machine(manifest.target)
    except ArtifactError as error:
        return f"{error.what} ({error.expected})"
    return "fits"


def _packages(manifest: Manifest) -> Iterator[str]:
    yield "numpy"
    specs = (*manifest.inputs, *manifest.outputs, *manifest.states, *manifest.constants)
    narrow = sorted({spec.dtype for spec in specs
                     if spec.dtype not in _BASIC and not spec.dtype.startswith(("int", "uint"))})
    if narrow:
        yield f"ml_dtypes (for {', '.join(narrow)})"


def _portable_text(file: ArtifactFile, entry: EntryPoint) -> str:
    """The version of a portable form, and its operators with how often they are called."""
    assert entry.portable is not None
    plain: dict[str, Any] = json.loads(bytes(file.read(entry.portable.program)))
    nodes = plain.get("nodes", [])
    names = {n: node["name"] for n, node in enumerate(nodes) if node.get("kind") == "Op"}
    calls = Counter(names[node["op"]] for node in nodes
                    if node.get("kind") == "Call" and node.get("op") in names)
    listed = ", ".join(f"{name}" + (f" x{n}" if n > 1 else "") for name, n in sorted(calls.items()))
    return (f"{entry.portable.program}, version {plain.get('version')}; compiled "
            f"where no native code fits and weft's compiler is installed; operators: {listed}")
