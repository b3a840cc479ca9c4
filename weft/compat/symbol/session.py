"""``Session``: runs symbols, with variables that keep their values between runs (tinyflow)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.compat.symbol.inference import Inference, is_known
from weft.compat.symbol.lowering import to_module
from weft.compat.symbol.node import NodeEntry
from weft.compat.symbol.symbol import Entries, Group, Symbol
from weft.compiler.api import compile as compile_model
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.runtime.executable import Executable

Feeds: TypeAlias = "Mapping[Symbol | str, Any]"


class Session:
    """Runs parts of graphs; each set of results and shapes of feeds is compiled at its first run.

    ``variables`` are values by name; a variable that a run assigns and that has none is zeros at
    first. ``options``, such as ``target``, are those of ``weft.compile``.
    """

    def __init__(self, variables: Mapping[str, Any] | None = None, **options: Any) -> None:
        self.variables: dict[str, Any] = {
            name: np.asarray(value) for name, value in (variables or {}).items()}
        self._options = options
        self._programs: dict[Any, Executable] = {}

    def run(self, fetches: Entries, feeds: Feeds | None = None) -> Any:
        """The value of a symbol with one result, or a list of the values of several.

        Assignments that ``fetches`` contain take effect when the run has succeeded. Raises
        ``InvalidInputError`` for a variable without a value, and what ``weft.compile`` raises.
        """
        wanted = Group(fetches)
        given = {key.name if isinstance(key, Symbol) else key: np.asarray(value)
                 for key, value in (feeds or {}).items()}
        states = wanted.states()
        known = {name: v for name, v in {**self.variables, **given}.items()
                 if name in wanted.list_input_names()}
        self._start(wanted, [name for name in states.values() if name not in known], known)
        missing = [name for name in wanted.list_input_names() if name not in known]
        if missing:
            raise InvalidInputError(f"the variable {missing[0]!r} has no value",
                                    got=", ".join(known) or None,
                                    expected=f"a value for {', '.join(missing)}",
                                    help="feed it, or give it to Session(variables=...)")
        program = self._program(wanted, known)
        found = program.run(None, {spec.name: known[spec.name] for spec in program.inputs})
        names = [spec.name for spec in program.outputs]
        self.variables.update((states[name], value) for name, value in zip(
            names[len(wanted):], found[len(wanted):], strict=True))
        values = found[:len(wanted)]
        is_single = isinstance(fetches, NodeEntry) or (
            isinstance(fetches, Symbol) and len(fetches) == 1)
        return values[0] if is_single else list(values)

    def _start(self, wanted: Symbol, names: list[str], known: dict[str, Any]) -> None:
        """Zeros for variables that are assigned, of the shapes that the graph gives them."""
        if not names:
            return
        facts = Inference(wanted.entries, {n: v.shape for n, v in known.items()},
                          {n: v.dtype.name for n, v in known.items()}).run()
        for node in facts.nodes:
            shape = facts.shape(node) if node.is_variable and node.name in names else None
            if shape is not None and is_known(shape):
                dtype = facts.dtype(node)
                known[node.name] = self.variables[node.name] = np.zeros(
                    shape, np.float32 if dtype is None else dtype.numpy)

    def _program(self, wanted: Symbol, known: Mapping[str, Any]) -> Executable:
        kinds = {name: (tuple(v.shape), str(v.dtype)) for name, v in known.items()}
        key = wanted.entries, tuple(sorted(kinds.items()))
        if key not in self._programs:
            mod = to_module(wanted.entries, shapes={n: shape for n, (shape, _) in kinds.items()},
                            dtypes={n: dtype for n, (_, dtype) in kinds.items()})
            self._programs[key] = compile_model(mod, **self._options)
        return self._programs[key]
