"""Compiling the portable form of an artifact for this machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.compiler.api import compile
from weft.compiler.options import CompileOptions
from weft.compiler.vm.specialize import Specializer
from weft.ir import IRModule, infer_type
from weft.ir.json.format import load_json
from weft.runtime.artifact_loader import PortableProgram
from weft.runtime.devices.sim.description import SimDevice
from weft.runtime.executable import Executable
from weft.runtime.manifest import TargetSpec
from weft.support.errors import ArtifactError, WeftError
from weft.support.plugins import load_plugins

# The options of a file that are arguments of ``weft.compile`` as they are.
_PLAIN = ("target", "opt_level", "state", "winograd", "symbolic_sizes", "placement",
          "soft_placement", "threads")


def rebuilt(program: PortableProgram, threads: int | None) -> Executable:
    """The program, compiled with the options that it was exported with; the disk cache keeps it.

    Raises ``ArtifactError`` for a damaged program, and what ``weft.compile`` raises.
    """
    module = module_of(program)
    made = compile(module, **_arguments(program.options, threads))
    for name, value in program.initial.items():
        made.state[name] = value  # of State
    return made


def module_of(program: PortableProgram) -> IRModule:
    """The typed module; ``ArtifactError`` for a damaged program."""
    load_plugins()

    def bytes_of(place: Mapping[str, Any]) -> memoryview:
        return program.member(place["member"])[place["at"]:place["at"] + place["nbytes"]]

    try:
        return infer_type(load_json(program.text, kept=bytes_of))
    except WeftError as error:
        raise ArtifactError(error.what, where=error.where, expected=error.expected, got=error.got,
                            help=error.help) from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ArtifactError("a damaged program", got=f"{type(error).__name__}: {error}") from None


def _arguments(options: Mapping[str, Any], threads: int | None) -> dict[str, Any]:
    """The arguments of ``weft.compile`` for the options of a file; ``threads`` replaces theirs."""
    given: dict[str, Any] = {name: options[name] for name in _PLAIN
                             if options.get(name) is not None}
    devices = [SimDevice(**one) if isinstance(one, dict) else one
               for one in options.get("devices") or ()]
    variants = [{name: tuple(sizes) for name, sizes in variant.items()}
                for variant in options.get("specialize") or ()]
    given |= {"devices": devices} if devices else {}
    given |= {"specialize": variants} if variants else {}
    return given | ({} if threads is None else {"threads": threads})


def specializer(target: TargetSpec) -> Specializer:
    """What compiles kernels of the virtual machine for this machine."""
    del target
    return Specializer(CompileOptions.make("cpu"))
