"""Writing compiled code as an artifact."""

from __future__ import annotations

import dataclasses
import os

from weft.codegen import backend_of
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode
from weft.export import export_artifact, export_c
from weft.runtime.launchers import launcher_of
from weft.support.errors import ArtifactError, OptionError, TargetError
from weft.support.fallback import FallbackLog, recording


def export_code(code: ModelCode, options: CompileOptions, path: str | os.PathLike[str],
                format: str, log: FallbackLog) -> None:
    """See ``Executable.export``; ``log`` gets the changes of plan of linking."""
    if format not in ("weft", "c"):
        raise OptionError("unknown format of an artifact", got=repr(format),
                          expected="'weft' or 'c'")
    code.check_portable()
    manifest = code.manifest
    if manifest.vm is not None and manifest.vm.has_dynamic_kernels:
        raise ArtifactError(
            "a model with dynamic shapes cannot be exported: artifacts contain no compiler",
            got=manifest.signature(),
            help='give all sizes, as in weft.compile(model, inputs={"x": (1, 3, 224, 224)})')
    target = options.target_of(manifest)
    backend = backend_of(target)
    if format == "c":
        if launcher_of(manifest).runs_devices_at_once:
            raise TargetError("a C program runs on one device",
                              got=", ".join(map(str, options.devices)),
                              help='export format="weft", or compile without devices')
        # The last objects are the runtime support of weft.load, not of C programs.
        own = code.objects[: len(code.objects) - len(backend.support_objects(target))]
        export_c(path, manifest, own, code.constants, target)
        return
    with recording(log), recording() as found:
        linked = backend.link(code.objects, target)
    listed = tuple(dict.fromkeys((*manifest.fallbacks, *found.found)))
    export_artifact(path, dataclasses.replace(manifest, fallbacks=listed), linked, code.constants)
