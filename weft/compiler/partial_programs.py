"""Parts of a compiled model: other tensors are computed, or other tensors are given."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.runtime.manifest import Manifest
from weft.runtime.named_call import NamedCall
from weft.runtime.run_control import RunControl
from weft.support.config import config
from weft.support.fork_locks import renew_in_child

if TYPE_CHECKING:
    from weft.compiler.executable import Executable
    from weft.compiler.stages import Stages

# The names of the tensors that are fetched (``None``: the outputs), and of those that are fed.
_Signature: TypeAlias = "tuple[tuple[str, ...] | None, tuple[str, ...]]"


class PartialPrograms:
    """The programs for other feeds and fetches of a model, each compiled at its first call.

    They read the weights of the model, in ``constants``, where they need the same. The
    ``WEFT_DYNAMIC_PROGRAMS`` programs used last are kept. Several threads may call at once.
    """

    def __init__(self, manifest: Manifest, constants: np.ndarray | None = None) -> None:
        self._manifest = manifest
        self._constants = constants
        self._inputs = frozenset(spec.name for spec in manifest.inputs)
        self._outputs = frozenset(spec.name for spec in manifest.outputs)
        self._programs: OrderedDict[_Signature, Executable] = OrderedDict()
        self._lock = threading.Lock()
        renew_in_child(self, "_lock")

    def is_whole(self, fetches: object, feeds: object) -> bool:
        """Whether the model itself computes this, or refuses the arguments."""
        if not isinstance(feeds, Mapping):
            return True
        inner = not self._inputs.issuperset(feeds)
        if fetches is None:
            return not inner
        if isinstance(fetches, str) or not isinstance(fetches, Sequence):
            return True
        return not inner and len(feeds) == len(self._inputs) and self._outputs.issuperset(fetches)

    def run(self, stages: Stages, fetches: Sequence[str] | None, feeds: Mapping[str, Any],
            control: RunControl | None = None) -> list[np.ndarray]:
        """The tensors ``fetches`` (``None``: the outputs) for ``feeds`` by name.

        Feeds that they do not need are ignored. Raises ``InvalidInputError`` for inputs that are
        missing, besides what ``program_for`` raises.
        """
        program = self.program_for(stages, fetches, feeds)
        names = {spec.name for spec in program.inputs}
        given = {name: value for name, value in feeds.items() if name in names}
        if control is not None:
            return program.run(None, given, control)
        results = program(**given)
        return list(results) if isinstance(results, tuple) else [results]

    def callable_of(self, model: Executable, stages: Stages, fetches: Sequence[str] | None,
                    feeds: Sequence[str] | None) -> NamedCall:
        """A function of the tensors ``feeds``, by position, that gives the list of ``fetches``.

        ``model`` itself makes the calls if it computes this.
        """
        names = tuple(spec.name for spec in model.inputs) if feeds is None else tuple(feeds)
        if self.is_whole(fetches, dict.fromkeys(names)):
            return NamedCall(model, fetches, names)
        return NamedCall(self.program_for(stages, fetches, dict.fromkeys(names)), None, names)

    def program_for(self, stages: Stages, fetches: Sequence[str] | None, feeds: Mapping[str, Any]
                    ) -> Executable:
        """The program that computes ``fetches`` from tensors with the names of ``feeds``.

        Raises ``InvalidInputError`` for unknown names, for a name that is fed and fetched, and for
        a tensor that is given twice.
        """
        signature = None if fetches is None else tuple(fetches), tuple(sorted(feeds))
        with self._lock:  # several threads may call with one new signature
            found = self._programs.get(signature)
            if found is None:
                found = self._programs[signature] = self._compiled(stages, *signature)
            self._programs.move_to_end(signature)
            while len(self._programs) > config.dynamic_programs:
                self._programs.popitem(last=False)
            return found

    def _compiled(self, stages: Stages, fetches: tuple[str, ...] | None, feeds: tuple[str, ...]
                  ) -> Executable:
        from weft.compiler.compile_model import part_of
        from weft.compiler.program.constants import BesideBlock
        from weft.compiler.program.own_block import OwnBlock

        memory = OwnBlock() if self._constants is None else BesideBlock(self._manifest,
                                                                        self._constants)
        return part_of(stages, fetches, feeds, memory)
