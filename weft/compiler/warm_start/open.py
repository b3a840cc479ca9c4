"""Opening a compiled file from the disk cache."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from weft.compiler.compiled_model import CompiledModel
from weft.compiler.dynamic_model import CompileAt, DynamicModel
from weft.compiler.request import CompileRequest
from weft.compiler.warm_start.diagnosis import WARM
from weft.compiler.warm_start.record import is_for_files, recall
from weft.compiler.warm_start.state import shows_stages
from weft.runtime.artifact import check_machine, module_class
from weft.runtime.code_payload import CodePayload, read_payload
from weft.runtime.elf.loader import ObjectLibrary, loads_objects
from weft.runtime.manifest import Manifest
from weft.runtime.module import CompiledModule
from weft.runtime.sized_module import SizedModule
from weft.support.cache import open_cache
from weft.support.config import config, report_unknown_variables
from weft.support.errors import ArtifactError
from weft.support.fallback import recording, report_all
from weft.support.log import Level, debug

if TYPE_CHECKING:
    from weft.compiler.executable import Executable
    from weft.compiler.options import CompileOptions
    from weft.compiler.program.model_code import ModelCode
    from weft.compiler.stages import Stages


def open_warm(request: CompileRequest) -> CompiledModel | DynamicModel | None:
    """The executable of an unchanged file from the disk cache; ``None``: compile it.

    A process that has imported the compiler compiles: its user may have registered operators or
    passes since.
    """
    if compiler_is_loaded() or not loads_objects() or not is_for_files(request):
        return None
    with config(**request.knobs), recording(strict=request.strict):
        cache = None if shows_stages() else open_cache()
        found = None if cache is None else recall(cache, request)
        payload = None if cache is None or found is None else cache.get_unchanged(*found)
        if payload is None:
            return None
        report_unknown_variables()
        debug(Level.CACHE, "compiler", "the whole model was in the cache")
        threads = config.override("threads") if "threads" in request.knobs else None
        return _opened(read_payload(payload), request, threads)


def compiler_is_loaded() -> bool:
    """Whether this process has imported the compiler."""
    return "weft.compiler.compile_model" in sys.modules


def _opened(payload: CodePayload, request: CompileRequest, threads: int | None
            ) -> CompiledModel | DynamicModel | None:
    report_all(payload.manifest.fallbacks)
    manifest = replace(payload.manifest, threads=threads)
    kind = module_class(manifest)
    if manifest.target.kind != "cpu" or kind not in (CompiledModule, SizedModule) \
            or manifest.launched_by == "lanes":
        return None
    try:
        check_machine(manifest.target)
    except ArtifactError:  # code for another CPU
        return None
    library = ObjectLibrary(payload.objects)
    again = _Again(request, manifest)
    made: CompiledModel | DynamicModel
    if kind is CompiledModule:
        made = CompiledModel(manifest, library, payload.constants, again)
    else:
        general = SizedModule(manifest, library, payload.constants)
        made = DynamicModel(manifest, again, again.compile_at, general)
    made._start = WARM  # noqa: SLF001 - said once, where the executable is made
    return made


class _Again:
    """The compilation of a model that came from the cache, repeated when somebody asks for it."""

    def __init__(self, request: CompileRequest, manifest: Manifest) -> None:
        self._request = request
        self._manifest = manifest

    @functools.cached_property
    def stages(self) -> Stages:
        """See ``Compilation``."""
        from weft.compiler.compile_model import stages_of

        return stages_of(self._request, self._manifest)

    @functools.cached_property
    def code(self) -> ModelCode:
        """See ``Compilation``."""
        from weft.compiler.compile_model import code_of

        return code_of(self._request)

    def compile_at(self, options: CompileOptions) -> Executable:
        """The program for sizes outside of the ranges of the general one."""
        return self._compiler(options)

    @functools.cached_property
    def _compiler(self) -> CompileAt:
        from weft.compiler.compile_model import compiler_at

        return compiler_at(self._request)
