"""``weft targets`` and ``weft doctor``."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

import click

from weft import __version__
from weft.cli.cache import cache_line
from weft.cli.common import print_json, print_table
from weft.support.config import config, knobs, unknown_variables
from weft.support.errors import OptionError
from weft.support.plugins import library_version, load_plugins

_LIBRARIES = ("numpy", "ml_dtypes", "llvmlite", "numba", "onnx", "onnxruntime", "torch")


@click.command("targets")
@click.option("--machines", is_flag=True, help="list the machines whose tables weft ships")
@click.option("--machine", metavar="NAME", default="",
              help="show what is decided on a machine, for a few layers")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def targets_command(*, machines: bool, machine: str, as_json: bool) -> None:
    """Show this machine's target, and what else weft compiles for."""
    if machine:
        _show_machine(machine, as_json=as_json)
        return
    if machines:
        _list_machines(as_json=as_json)
        return
    from weft.runtime.devices.cpu.host import known_features
    from weft.target import CpuTarget
    from weft.target.architectures import TRIPLES, arch_of, platform_of
    from weft.target.cpus import named_cpus
    from weft.target.cuda_target import ARCHS
    from weft.target.target import TARGET_KINDS

    load_plugins()
    host, kinds = CpuTarget.host(), list(TARGET_KINDS)
    others = {title: {"triple": triple, "cpus": named_cpus(arch_of(triple)),
                      "features": sorted(known_features(arch_of(triple))),
                      "objects": platform_of(triple).object_format}
              for title, triple in TRIPLES.items()}
    if as_json:
        print_json({"host": str(host), "kinds": kinds, "cpus": named_cpus(host.arch),
                    "cuda": list(ARCHS), "machines": others})
        return
    click.echo(f"host: {host}\nkinds of targets: {', '.join(kinds)}\n")
    click.echo('GPUs by architecture (weft compile --target "cuda -arch=NAME"):')
    click.echo("  " + " ".join(ARCHS) + "\n")
    click.echo('CPUs by name (weft compile --target "llvm -mcpu=NAME"):')
    click.echo("  " + " ".join(named_cpus(host.arch)))
    click.echo('\nother machines (weft compile --target "llvm -mtriple=TRIPLE -mcpu=NAME"; '
               "features by -mattr=+NAME):")
    for title, facts in others.items():
        click.echo(f"  {facts['triple']}: {title}, {facts['objects']} objects\n"
                   f"    -mcpu: {' '.join(facts['cpus'])}\n"
                   f"    -mattr: {' '.join(facts['features'])}")


def _show_machine(name: str, *, as_json: bool) -> None:
    """What weft decides for a few layers on a shipped machine."""
    # The strategies are imported here: the other tables do without them.
    from weft.cli.machines import decisions, target_of_machine
    from weft.target.machine_tables import machine_table, summary_of

    target = target_of_machine(name)
    found = list(decisions(target))
    if as_json:
        print_json({"machine": name, "target": str(target), "decisions": dict(found)})
        return
    caches = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    sizes = ", ".join(f"L{number} {size >> 10} KiB" for number, size in enumerate(caches, 1))
    table = machine_table(name)
    print_table(f"{name}: {table.title}; {sizes}; values: {summary_of(table.kinds.values())}",
                ("layer", "decision"), found)


def _list_machines(*, as_json: bool) -> None:
    """The shipped machines."""
    from weft.target.cpus import MACHINES_OF_CPUS
    from weft.target.machine_tables import machine_names, machine_table, summary_of

    keys = ("name", "arch", "title", "values", "cpus")
    rows = []
    for table in map(machine_table, machine_names()):
        cpus = [cpu for (arch, cpu), name in MACHINES_OF_CPUS.items()
                if (arch, name) == (table.arch, table.name)]
        rows.append((table.name, table.arch, table.title, summary_of(table.kinds.values()),
                     " ".join(cpus)))
    if as_json:
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table("", ("machine", "architecture", "title", "values", "CPUs"), rows)


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="print as JSON")
def doctor_command(*, as_json: bool) -> None:
    """Show the installation of weft, and list every setting.

    The exit code is 2 if a setting has an invalid value.
    """
    from weft.cli.gpu_facts import gpu_facts

    settings, wrong = _settings()
    facts = {**_machine(), "machine model": _model(), **gpu_facts(), **_libraries()}
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


def report_facts() -> dict[str, str]:
    """What a report of a fault needs: machine, libraries, and the settings that are not usual."""
    names = (knob.env for knob in knobs().values())
    changed = {name: os.environ[name] for name in names if name in os.environ}
    return {**_machine(), **_libraries(), **changed}


def _libraries() -> dict[str, str]:
    """The libraries that weft stands on, with their versions."""
    return {name: library_version(name) for name in _LIBRARIES}


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
    from weft.runtime.devices.cpu.host import machine, model_name, usable_cpus

    linkers = [str(linker) for linker in find_linkers(machine())]
    return {
        "weft": __version__, "python": platform.python_version(), "system": platform.platform(),
        "processor": model_name(), "cpus": str(usable_cpus()),
        "cache": _cache(),
        "linker": ", ".join(linkers) or "none on the path (pip install weft[cross])",
    }


def _model() -> str:
    """What decisions for this machine follow."""
    from weft.cli.machines import summary  # the strategies, which other facts do without
    from weft.target import CpuTarget

    return summary(CpuTarget.host())


def _cache() -> str:
    try:
        return cache_line()
    except OptionError as error:
        return f"not opened: {error.what}"
