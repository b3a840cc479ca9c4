"""``Session``: runs parts of a graph, with variables that are kept from run to run."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from weft.compat.graph.fetches import FetchTree, tensor_text
from weft.compat.graph.graph import Graph
from weft.compat.graph.import_graph import import_graph
from weft.compat.graph.node import Node, Tensor
from weft.compat.graph.partial_run import PartialRun
from weft.compat.graphdef.definitions import GraphDef
from weft.compat.graphdef.names import CONTROL, parse_tensor
from weft.compiler.api import compile as compile_model
from weft.runtime.run_control import CancellationToken, RunControl
from weft.support.config import config
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.runtime.executable import Executable
    from weft.runtime.step_trace import StepTrace

Feeds: TypeAlias = "Mapping[str | Tensor, Any]"
_Signature: TypeAlias = "tuple[tuple[str, ...], tuple[str, ...]]"


class Session:
    """Runs parts of ``graph``; each set of fetched and fed names is compiled at its first run.

    ``variables`` are placeholders that the session feeds itself, with their first values;
    ``assign`` maps a tensor to the variable that gets its value when a run that fetches it has
    succeeded: ``Session(g, variables={"w": w0}, assign={"w_next": "w"})``. The variables of the
    graph itself (``Graph.variable``) have one value in all runs. ``options`` are those of
    ``weft.compile``; on several ``devices`` the placement is ``"cost"`` unless it is given. Several
    threads may run; runs that assign variables follow one another. A session is a context manager
    that closes it.
    """

    def __init__(self, graph: Graph, *, variables: Mapping[str, Any] | None = None,
                 assign: Mapping[str, str] | None = None, **options: Any) -> None:
        self.graph = graph
        several = len(tuple(options.get("devices") or ())) > 1
        self._options: dict[str, Any] = {"placement": "cost"} | options if several else options
        self._variables = {_text(graph, name): np.array(value)
                           for name, value in (variables or {}).items()}
        self._assign = {_text(graph, name): _text(graph, variable)
                        for name, variable in (assign or {}).items()}
        for name, variable in self._assign.items():
            if variable not in self._variables:
                raise InvalidInputError(f"{name!r} is assigned to an unknown variable",
                                        got=variable, expected=", ".join(self._variables) or None)
        self._states: dict[str, Any] = {}  # those of the graph, which its programs share
        self._programs: OrderedDict[_Signature, Executable | None] = OrderedDict()
        self._lock = threading.Lock()
        self._assigning = threading.Lock()
        self._closed = CancellationToken()

    @property
    def variables(self) -> dict[str, np.ndarray]:
        """Copies of the values of the variables."""
        with self._lock:
            return {name: np.array(value)
                    for name, value in (*self._states.items(), *self._variables.items())}

    def set_variable(self, name: str, value: Any) -> None:
        """Replace the value of a variable. Raises ``InvalidInputError`` for an unknown one."""
        known = (*self._variables, *self._states)
        if name not in known:
            raise InvalidInputError(f"the session has no variable {name!r}", got=name,
                                    expected=", ".join(known) or "no variables")
        with self._assigning, self._lock:
            if name in self._states:
                known = self._states[name]
                if isinstance(known, np.ndarray):
                    known[...] = value
                else:  # memory of a device
                    known.copy_from(np.broadcast_to(np.asarray(value, known.dtype), known.shape))
            else:
                self._variables[name] = np.array(value)

    def run(self, fetches: Any, feeds: Feeds | None = None, *, timeout: float | None = None,
            cancel: CancellationToken | None = None) -> Any:
        """The values of ``fetches``: a tensor, a name, or nested sequences and mappings of them.

        The result has the structure of ``fetches``; a ``Node`` among them runs, and its value is
        ``None``. ``feeds`` may name any tensor. With ``timeout`` (seconds) or ``cancel`` the run
        may end early, between two kernels; variables then keep their values. Raises
        ``RunTimeoutError``, ``RunCancelledError``, ``InvalidInputError`` and what ``weft.compile``
        raises.
        """
        if timeout is None and cancel is None:
            return self._run(fetches, feeds or {}, None)
        with self._linked(cancel) as token:
            return self._run(fetches, feeds or {}, RunControl(timeout, token))

    def run_traced(self, fetches: Any, feeds: Feeds | None = None, *,
                   timeout: float | None = None, cancel: CancellationToken | None = None
                   ) -> tuple[Any, StepTrace]:
        """``run``, and when each step ran, with a lane for each device."""
        with self._linked(cancel) as token:
            control = RunControl(timeout, token, is_traced=True)
            values = self._run(fetches, feeds or {}, control)
            return values, control.step_trace()

    def make_callable(self, fetches: Any, feeds: Sequence[str | Tensor] = ()
                      ) -> Callable[..., Any]:
        """A function of the tensors ``feeds``, by position, that runs ``fetches``; compiled now."""
        names = [tensor_text(self.graph, one) for one in feeds]
        tree = FetchTree(self.graph, fetches)
        self.program(tree.texts, names)

        def call(*values: Any) -> Any:
            if len(values) != len(names):
                raise InvalidInputError("wrong number of arguments", got=len(values),
                                        expected=f"{len(names)}: {', '.join(names)}")
            return tree.built(self.values(tree.texts, dict(zip(names, values, strict=True)), None))

        return call

    def partial_run_setup(self, fetches: Any, feeds: Sequence[str | Tensor] = ()) -> PartialRun:
        """A step whose feeds and fetches come in several calls of ``partial_run``.

        ``fetches`` and ``feeds`` are all that these calls may use, each of them once.
        """
        self._check_open()
        tree = FetchTree(self.graph, fetches)
        names = [tensor_text(self.graph, one) for one in feeds]
        return PartialRun(self.graph, self.values, tree.texts, names, self.variables)

    def partial_run(self, run: PartialRun, fetches: Any, feeds: Feeds | None = None, *,
                    timeout: float | None = None, cancel: CancellationToken | None = None) -> Any:
        """The values of some fetches of ``run``, from these feeds and those of earlier calls.

        ``fetches`` may be empty. Raises ``InvalidInputError`` for a name that the set-up lacks, a
        name that was fed or fetched before, and a fetch that needs a missing feed.
        """
        given = named_feeds(self.graph, feeds or {})
        if timeout is None and cancel is None:
            return run.run(fetches, given, None)
        with self._linked(cancel) as token:
            return run.run(fetches, given, RunControl(timeout, token))

    def extend(self, graph_def: GraphDef) -> None:
        """Add nodes, which may read those of the graph; all of them or, on an error, none."""
        self._check_open()
        new = {node.name for node in graph_def.nodes}
        read = [found for name in dict.fromkeys(parse_tensor(text).node for node in graph_def.nodes
                                                for text in node.inputs)
                if name not in new and (found := self.graph.find_node(name)) is not None]
        # The existing nodes that the new ones read are part of the graph to import; they are
        # skipped.
        known: dict[str, Tensor | Node] = {f"^{node.name}": node for node in read}
        known |= {one.name: one for node in read for one in node.outputs}
        stubs = tuple(dataclasses.replace(node.definition(), inputs=()) for node in read)
        import_graph(dataclasses.replace(graph_def, nodes=(*stubs, *graph_def.nodes)), self.graph,
                     input_map=known, skip_mapped_nodes=True)

    def close(self) -> None:
        """End the session: runs with a limit are cancelled, others end, later ones are errors."""
        self._closed.cancel("the session is closed")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Also used by partial runs.

    def values(self, texts: Sequence[str], feeds: Mapping[str, Any], control: RunControl | None
               ) -> dict[str, np.ndarray | None]:
        """The values of tensors by name; feeds variables, and assigns them if the run succeeds."""
        self._check_open()
        clash = next((name for name in feeds if name in self._assign and name in texts), None)
        if clash is not None:
            raise InvalidInputError(f"{clash!r} is both fed and fetched")
        program = self.program(texts, feeds)
        if program is None:
            return {**self._read(texts)}
        assigned = [text for text in texts if text in self._assign]
        read = any(spec.name in self._states for spec in program.inputs)
        alone = assigned or program.manifest.states or read
        with self._held(control) if alone else nullcontext():
            with self._lock:
                known = {**self._states, **self._variables, **feeds}
                given = {spec.name: known.get(spec.name) for spec in program.inputs}
            missing = [name for name, value in given.items() if value is None]
            if missing:
                raise InvalidInputError(f"{missing[0]!r} is not fed", got=", ".join(feeds) or None,
                                        expected=f"a value for {', '.join(missing)}")
            results = program.run(None, given, control)
            arrays = [np.asarray(result) for result in results]
            found = dict(zip((spec.name for spec in program.outputs), arrays, strict=True))
            found = {**self._read([t for t in texts if t in self._states]), **found}
            with self._lock:
                for text in assigned:
                    self._variables[self._assign[text]] = found[text].copy()
        return {text: found.get(text) for text in texts}

    def _read(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Copies of variables of the graph."""
        with self._lock:
            return {name: np.array(self._states[name]) for name in names}

    def program(self, texts: Sequence[str], feeds: Sequence[str] | Mapping[str, Any]
                ) -> Executable | None:
        """The program for fetches and feeds by name; ``None`` where they need no computation."""
        signature = tuple(texts), tuple(sorted(feeds))
        with self._lock:
            if signature in self._programs:
                self._programs.move_to_end(signature)
                return self._programs[signature]
        made = self._compiled(signature)
        with self._lock:
            if made is not None:
                self._share(made)
            self._programs[signature] = made
            while len(self._programs) > config.dynamic_programs:
                self._programs.popitem(last=False)
        return made

    def _compiled(self, signature: _Signature) -> Executable | None:
        """The program; ``None`` if variables that it does not assign are all that is fetched."""
        texts, fed = signature
        inner: dict[str, Any] = {name: None for name in fed if not self._is_placeholder(name)}
        # Variables that the program does not assign would be its constants; here they are inputs.
        read = self.graph.to_module(list(texts), inner).attrs.get("read_only", ())
        if read:
            first = self.graph.initial_values()
            with self._lock:
                for name in read:
                    self._states.setdefault(name, np.array(first[name]))
        inner.update(dict.fromkeys(read))
        wanted = [text for text in texts if text not in read]
        return compile_model(self.graph, outputs=wanted, inputs=inner, **self._options) \
            if wanted else None

    def _share(self, program: Executable) -> None:
        """Let the program keep the graph's variables in the memory of the session."""
        if not program.state:
            return
        for name, memory in program.state.items():
            known = self._states.setdefault(name, memory)
            if type(known) is not type(memory) and not any(
                    name in other.state for other in self._programs.values() if other is not None):
                program.state[name] = known  # type: ignore[index]  # so far only an input
                self._states[name] = memory
        program.share_state({name: self._states[name] for name in program.state})

    def is_variable(self, name: str) -> bool:
        """Whether the session feeds this tensor itself."""
        return name in self._variables

    def _is_placeholder(self, name: str) -> bool:
        node = self.graph.find_node(parse_tensor(name).node)
        return node is not None and node.op == "Placeholder"

    def _run(self, fetches: Any, feeds: Feeds, control: RunControl | None) -> Any:
        tree = FetchTree(self.graph, fetches)
        return tree.built(self.values(tree.texts, named_feeds(self.graph, feeds), control))

    def _check_open(self) -> None:
        if self._closed.is_cancelled:
            raise InvalidInputError("the session is closed", help="make a new one")

    @contextmanager
    def _linked(self, cancel: CancellationToken | None) -> Iterator[CancellationToken]:
        """A token that is cancelled with the session, and with the token of the user."""
        token = CancellationToken()
        forget = [one.when_cancelled(lambda one=one: token.cancel(one.reason or "cancelled"))
                  for one in (self._closed, cancel) if one is not None]
        try:
            yield token
        finally:
            for each in forget:
                each()

    @contextmanager
    def _held(self, control: RunControl | None) -> Iterator[None]:
        """Keep other runs from assigning variables."""
        if control is None:
            self._assigning.acquire()
        else:
            control.acquire(self._assigning)
        try:
            yield
        finally:
            self._assigning.release()


def named_feeds(graph: Graph, feeds: Feeds) -> dict[str, Any]:
    """Feeds by the names of their tensors. Raises ``InvalidInputError`` for a tensor fed twice."""
    found: dict[str, Any] = {}
    for key, value in feeds.items():
        name = tensor_text(graph, key)
        if name in found:
            raise InvalidInputError("a tensor is fed more than once", got=repr(name))
        found[name] = value
    return found


def _text(graph: Graph, name: str) -> str:
    if parse_tensor(name).index == CONTROL:
        raise InvalidInputError("a node is no tensor", got=repr(name))
    return tensor_text(graph, name)
