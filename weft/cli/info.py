"""``weft targets`` and ``weft doctor``."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict

import click

from weft import __version__
from weft.cli.cache import cache_line
from weft.cli.common import print_json, print_table
from weft.support.config import config, knobs, unknown_variables
from weft.support.errors import OptionError
from weft.support.plugins import load_plugins
from weft.support.versions import library_version

_LIBRARIES = ("numpy", "ml_dtypes", "llvmlite", "numba", "onnx", "onnxruntime", "torch")


@click.command("targets")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def targets_command(*, as_json: bool) -> None:
    """Show this machine's target, the kinds of targets, and the CPUs to compile for by name."""
    from weft.target import CpuTarget
    from weft.target.cpus import named_cpus
    from weft.target.cuda_target import ARCHS
    from weft.target.target import TARGET_KINDS

    load_plugins()
    host, kinds = CpuTarget.host(), list(TARGET_KINDS)
    if as_json:
        print_json({"host": str(host), "kinds": kinds, "cpus": named_cpus(host.arch),
                    "cuda": list(ARCHS)})
        return
    click.echo(f"host: {host}\nkinds of targets: {', '.join(kinds)}\n")
    click.echo('GPUs by architecture (weft compile --target "cuda -arch=NAME"):')
    click.echo("  " + " ".join(ARCHS) + "\n")
    click.echo('CPUs by name (weft compile --target "llvm -mcpu=NAME"):')
    click.echo("  " + " ".join(named_cpus(host.arch)))


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def doctor_command(*, as_json: bool) -> None:
    """Show the installation of weft, and list every setting.

    The exit code is 2 if a setting has an invalid value.
    """
    from weft.cli.gpu_facts import gpu_facts

    settings, wrong = _settings()
    facts = {**_machine(), **gpu_facts(),
             **{name: library_version(name) for name in _LIBRARIES}}
    plugins = load_plugins()
    if as_json:
        print_json({**facts, "plugins": [asdict(p) for p in plugins],
                    "settings": settings, "unknown": sorted(unknown_variables())})
        _refuse(wrong)
        return
    print_table("", ("what", "found"), list(facts.items()))
    if plugins:
        print_table("\nplug-ins", ("name", "package", "entry point", "state"),
                    [(p.name, p.package, p.value, p.error or "loaded") for p in plugins])
    rows = [(k.env, settings[k.env], k.doc) for k in knobs().values()]
    print_table("\nsettings (environment variables)", ("variable", "now", "meaning"), rows)
    for name, close in unknown_variables().items():
        click.echo(f"\n{name} is not a setting" + (f"; did you mean {close}?" if close else ""))
    _refuse(wrong)


def _settings() -> tuple[dict[str, object], list[OptionError]]:
    """The value of every setting by its variable, and the errors of invalid ones."""
    found: dict[str, object] = {}
    wrong: list[OptionError] = []
    for name, knob in knobs().items():
        try:
            found[knob.env] = getattr(config, name)
        except OptionError as error:
            found[knob.env] = f"invalid: {error.got}"
            wrong.append(error)
    return found, wrong


def _refuse(wrong: Sequence[OptionError]) -> None:
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise OptionError(f"{len(wrong)} settings have invalid values",
                          notes=[f"{e.what}: expected {e.expected}, got {e.got}" for e in wrong])


def _machine() -> dict[str, str]:
    from weft.codegen.elf.linker import find_linkers
    from weft.runtime.cpu import machine, usable_cpus

    linkers = [str(linker) for linker in find_linkers(machine())]
    return {
        "weft": __version__, "python": platform.python_version(), "system": platform.platform(),
        "cpus": str(usable_cpus()),
        "cache": _cache(),
        "linker": ", ".join(linkers) or "none on the path (pip install weft[linker])",
    }


def _cache() -> str:
    try:
        return cache_line()
    except OptionError as error:
        return f"not opened: {error.what}"
