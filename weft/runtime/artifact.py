"""Loading artifacts: everything is verified before anything is mapped as code.

An artifact holds machine code. Checksums detect damage, not malice: load files only from sources
whose programs you would run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from weft.runtime.artifact_contents import MAIN
from weft.runtime.artifact_loader import Loader, Rebuilder, errors_named
from weft.runtime.devices.cpu.threads import checked_count
from weft.runtime.executable import Executable
from weft.support.config import report_unknown_variables
from weft.support.errors import ArtifactError


class LoadedEntries(Mapping[str, Executable]):
    """The entry points of an artifact by name, each loaded at its first use.

    They share the weights of the file. States of the same name, dtype and shape are one array, so
    that one entry point reads what another has trained.
    """

    def __init__(self, names: Sequence[str], facts: Mapping[str, Any],
                 load_entry: Callable[[str], Executable]) -> None:
        self.facts = facts
        self._names = tuple(names)
        self._load = load_entry
        self._loaded: dict[str, Executable] = {}

    def __getitem__(self, name: str) -> Executable:
        if name not in self._names:
            raise ArtifactError(f"the artifact has no entry point {name!r}",
                                expected=", ".join(self._names))
        if name not in self._loaded:
            made = self._load(name)
            self._share_state(made)
            self._loaded[name] = made
        return self._loaded[name]

    def _share_state(self, made: Executable) -> None:
        kept: dict[str, np.ndarray] = {}
        for other in self._loaded.values():
            kept.update((name, array) for name, array in other.state.items()
                        if name in made.state and isinstance(array, np.ndarray)
                        and array.dtype == made.state[name].dtype
                        and array.shape == made.state[name].shape)
        if kept:
            made.share_state(kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(self._names)}>"


# Makes the object for the users of an artifact of some kind, such as a decoder.
Opener: TypeAlias = Callable[[LoadedEntries], Any]


def load(path: str | os.PathLike[str], *, map_constants: bool = True, threads: int | None = None,
         entry: str | None = None, rebuilder: Rebuilder | None = None,
         openers: Mapping[str, Opener] | None = None,
         trusted_keys: Sequence[object] | None = None, sandbox: bool = False) -> Any:
    """The module that an artifact holds; no compiler is imported for code that fits this CPU.

    A file with several entry points gives a mapping from their names to modules, and with ``entry``
    the module of one. Of several native programs, the one that uses most of what this CPU has is
    loaded. If none fits, ``rebuilder`` compiles the portable form; without one the file is refused.

    Weights are mapped from the file, so that processes share them: replace the file as a whole
    (as ``export`` does), do not write into it while a module is in use. With
    ``map_constants=False`` they are copied into large pages of this process, which saves a few
    percent of a call that reads many MB of them. ``threads`` is the number of threads of the
    module's calls; it replaces the number that the artifact was exported with. With
    ``trusted_keys`` the file must have been signed by one of these public keys: texts or paths of
    files as ``weft keys`` writes them, or key objects of ``cryptography``. With ``sandbox``
    code for WebAssembly is run under ``wasmtime``, in one thread: it reaches its own memory alone.

    Raises ``ArtifactError`` for a file that is missing, damaged, not an artifact, of another
    format version, or for another machine or kind of target, ``SignatureError`` for one that no
    trusted key has signed, and ``OptionError`` for ``threads`` other than 1 to 4096.
    """
    checked_count(threads)
    report_unknown_variables()
    try:
        file = Path(path)
    except TypeError:
        raise ArtifactError("not the path of an artifact", got=repr(path)) from None
    with errors_named(path):
        loader = Loader.of(file, threads, rebuilder, map_constants=map_constants,
                           sandbox=sandbox)
        if trusted_keys is not None:
            from weft.runtime.artifact_signatures import check_signed

            check_signed(loader.file, trusted_keys)
        contents = loader.contents
        entries = LoadedEntries(list(contents.entries), contents.facts, loader.entry_point)
        if entry is not None:
            return entries[entry]
        if contents.kind:
            return _opener(contents.kind, openers or {})(entries)
        return entries[MAIN] if list(entries) == [MAIN] else entries


def _opener(kind: str, openers: Mapping[str, Opener]) -> Opener:
    if kind not in openers:
        raise ArtifactError(f"the artifact holds a {kind}, which weft.load opens", got=kind,
                            expected=", ".join(openers) or "a module",
                            help="name an entry point to load its module alone")
    return openers[kind]
