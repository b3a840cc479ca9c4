"""``Replicas``: processes that compute for one server, and whose end loses no request."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from weft.runtime.devices.cpu.host import usable_cpus
from weft.runtime.executors import Call, Processes
from weft.runtime.manifest import TensorSpec
from weft.serving.tensor_model import TensorModule
from weft.support.config import config
from weft.support.errors import OptionError, WorkerError

T = TypeVar("T")
ARTIFACT_SUFFIX = ".weft"


class Replicas:
    """Processes with copies of all models; the server's own process keeps the connections.

    A process that ends is started again, and what it computed is computed by another one: a model
    has no state, so the answer is the same. A call is refused with ``WorkerError`` only once two
    more processes than there are have ended in it; one that takes longer than
    ``timeout`` seconds ends its process, and is refused with ``RunTimeoutError``.
    """

    def __init__(self, count: int, *, threads: int | None = None, timeout: float | None = None
                 ) -> None:
        if count < 1:
            raise OptionError("a server needs a replica", expected="at least 1", got=count)
        self.count = count
        self.lost = 0
        self._timeout = timeout
        self._pool = Processes(count, threads=threads or max(1, usable_cpus() // count),
                               environment={"WEFT_PRECISION": config.precision})
        self._folder = tempfile.TemporaryDirectory(prefix="weft-serve-")

    def module(self, path: str, module: TensorModule) -> ReplicatedModule:
        """``module``, which came of ``path``, as all processes load it.

        One that was compiled here is exported for them. Raises ``ArtifactError`` for a module that
        has no artifact.
        """
        if not path.endswith(ARTIFACT_SUFFIX):
            number = sum(1 for _ in Path(self._folder.name).iterdir())
            path = str(Path(self._folder.name) / f"{number}{ARTIFACT_SUFFIX}")
            module.export(path, portable=False, check=False)  # type: ignore[attr-defined]
        return ReplicatedModule(self, str(Path(path).absolute()), module)

    def everywhere(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function in all processes."""
        calls = [self._pool.run(Call(function, args, worker=name)) for name in self.names]
        for call in calls:
            call.result()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the workers' slots, for ``call_on``."""
        return tuple(worker.name for worker in self._pool.workers())

    def process_ids(self) -> dict[str, int]:
        """The processes that there are now, by the name of their place."""
        return self._pool.process_ids()

    def call_on(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """The result of a function in one process; ``WorkerError`` if it ends."""
        try:
            return self._pool.run(Call(function, args, timeout=self._timeout, worker=name)).result()
        except WorkerError:
            self.lost += 1
            raise

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """The result of a function in one of the processes."""
        for left in reversed(range(self.count + 2)):
            try:
                return self._pool.run(Call(function, args, timeout=self._timeout)).result()
            except WorkerError:
                self.lost += 1
                if not left:
                    raise
        raise AssertionError  # the loop returns or raises

    def close(self) -> None:
        """End the processes, once they have computed what they were given."""
        self._pool.shutdown()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


class ReplicatedModule:
    """A module whose calls run in ``Replicas``, as many at a time as there are processes."""

    def __init__(self, replicas: Replicas, path: str, module: TensorModule) -> None:
        from weft.serving import replica_worker

        self.inputs: tuple[TensorSpec, ...] = module.inputs
        self.outputs: tuple[TensorSpec, ...] = module.outputs
        self.manifest = getattr(module, "manifest", None)
        self.state = getattr(module, "state", None)
        if getattr(module, "launcher", self) is None:
            self.launcher = None  # each batch size would compile a program of its own
        self.replicas = replicas.count
        self._run = replica_worker.run
        self._replicas, self._path = replicas, path
        replicas.everywhere(replica_worker.load, path)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], /
            ) -> list[np.ndarray]:
        """The outputs, all of them, in order."""
        assert output_names is None
        return self._replicas.call(self._run, self._path, feeds)
