"""Models for workers: artifacts with code for the CPU of each."""

from __future__ import annotations

import functools
import os
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.compiler import api
from weft.runtime.devices.cpu import host
from weft.runtime.executable import Executable
from weft.runtime.executors import Call, Executor, Shared, Worker
from weft.runtime.executors.module_worker import run_batch, run_function
from weft.support.errors import ArtifactError, OptionError
from weft.target import CpuTarget

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial)


def call_maker(model: Any, executor: Executor, timeout: float | None, options: Mapping[str, Any]
               ) -> Callable[[int, Any], Call]:
    """A function that makes the call for the batch of a number."""
    if isinstance(model, _FUNCTIONS):
        if options:
            raise OptionError("options are for models, not for functions",
                              got=", ".join(options))
        return lambda number, batch: Call(run_function, (model, batch), timeout=timeout,
                                          label=f"batch {number}")
    artifact = Shared.of(artifact_for(model, executor, options))
    return lambda number, batch: Call(run_batch, (artifact.digest, artifact, batch),
                                      timeout=timeout, label=f"batch {number}")


def artifact_for(model: Any, executor: Executor, options: Mapping[str, Any]) -> bytes:
    """An artifact that the workers can run: the given file, or code for each kind of CPU."""
    is_path = isinstance(model, str | os.PathLike)
    if is_path and str(os.fspath(model)).endswith(".weft"):
        try:
            return Path(model).read_bytes()
        except OSError as error:
            raise ArtifactError("the artifact cannot be read", where=model,
                                got=error.strerror) from None
    if isinstance(model, Executable):
        if options:
            raise OptionError("the module is compiled already", got=", ".join(options))
        return _exported(model, ())
    targets = targets_of(executor)
    module = api.compile(model, target=targets[0], **options)
    return _exported(module, targets if len(targets) > 1 else ())


def targets_of(executor: Executor) -> list[str]:
    """The targets of the workers' CPUs, each once."""
    own = host.model_name(), frozenset(host.host_features())
    kinds: dict[tuple[str, frozenset[str]], Worker] = {}
    for worker in executor.workers():
        kinds.setdefault((worker.cpu, worker.features), worker)
    texts = [str(CpuTarget.host()) if kind == own else
             executor.run(Call(_host_target, worker=worker.name)).result()
             for kind, worker in kinds.items()]
    return list(dict.fromkeys(texts)) or [str(CpuTarget.host())]


def _host_target() -> str:
    return str(CpuTarget.host())


def _exported(module: Executable, levels: Sequence[str]) -> bytes:
    if module.manifest.states:
        raise OptionError("the model has a state, which batches on several workers cannot share",
                          got=", ".join(state.name for state in module.manifest.states))
    with tempfile.TemporaryDirectory(prefix="weft-batches-") as folder:
        path = Path(folder) / "module.weft"
        module.export(path, levels=levels or None, check=False)
        return path.read_bytes()
