"""The executable of a model's code."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from weft.codegen import backend_of
from weft.compiler.build.callbacks import errors_raised
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode, PerShape
from weft.runtime.executable import Executable, open_executable
from weft.runtime.launchers import Code, Launcher, open_launcher
from weft.runtime.library import Library
from weft.runtime.recompiler import Recompiler
from weft.support import trace
from weft.support.errors import OptionError
from weft.support.stage_times import stage

if TYPE_CHECKING:
    from weft.runtime.vm.kernels import Specialize


def open_program(code: ModelCode | PerShape, options: CompileOptions, recompiler: Recompiler
                 ) -> Executable:
    """The executable of a model's code.

    Raises ``OptionError`` if the user asks for kernels at some sizes, and all are fixed.
    """
    if isinstance(code, PerShape):
        return Executable(code.manifest, None, recompiler, start=code.start, reason=code.reason)
    manifest = code.manifest
    if options.specialize and not manifest.symbols:
        raise OptionError("specialize is for models with symbolic sizes",
                          got=manifest.signature(),
                          help='name the sizes: inputs={"x": ("batch", 3, 224, 224)}')
    with trace.span("load"), stage("linking and loading"):
        return open_executable(_runnable(code, options), recompiler)


def load_launcher(code: ModelCode, options: CompileOptions) -> Launcher:
    """The launcher of a model's code; raises what loading raises."""
    return open_launcher(_runnable(code, options))


def _runnable(code: ModelCode, options: CompileOptions) -> Code:
    around = functools.partial(errors_raised, code.callbacks) if code.callbacks else None
    specialize = None if code.manifest.vm is None else _specializer(options)
    return Code(code.manifest, functools.partial(_load, code, options), code.constants, around,
                specialize, code.start)


def _specializer(options: CompileOptions) -> Specialize:
    from weft.compiler.vm.specialize import Specializer  # which compiles

    return Specializer(options)


def _load(code: ModelCode, options: CompileOptions) -> Library:
    target = options.target_of(code.manifest)
    return backend_of(target).load(code.objects, target)
