"""One region of a traced graph: compiled for the sizes that it meets, run by torch if it must be.

Parameters and buffers are constants where no gradients are recorded, so that they are folded and
packed; a change to one of them is noticed, and the region compiled again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from weft.compiler.api import compile as compile_model
from weft.compiler.integrations.torch.fallback import GraphReport, warn_of_failure
from weft.compiler.integrations.torch.outputs import maker_of
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.importer import GraphImporter, array_of
from weft.frontend.torch.program import Port, TorchProgram
from weft.ir.expr import Var
from weft.ir.types import TensorType
from weft.support.config import config

# A region whose weights change again and again takes them as inputs.
MAX_FREEZES = 3


@dataclass(frozen=True, slots=True)
class Frozen:
    """A weight that was compiled in; ``version`` counts the changes that torch makes to it."""

    position: int
    tensor: torch.Tensor
    version: int

    def still_is(self, value: Any) -> bool:
        return value is self.tensor and value._version == self.version  # noqa: SLF001


# From all arguments of a region to its results.
Specialized = Callable[[Sequence[Any]], list[Any]]


class Region(torch.nn.Module):
    """Called with tensors and numbers; ``static`` are the positions of weights.

    ``strict`` raises what compiling raises; else torch runs the region then.
    """

    def __init__(self, graph: torch.fx.GraphModule, static: frozenset[int],
                 settings: Mapping[str, Any], report: GraphReport, *, strict: bool) -> None:
        super().__init__()
        # Behind a function, lest torch takes its tensors for parameters of this module.
        self._graph = lambda: graph
        self._placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self._outputs = next(n for n in graph.graph.nodes if n.op == "output").args[0]
        self._static = static
        self._settings = settings
        self._report = report
        self._strict = strict
        self._frozen: tuple[Frozen, ...] = ()
        self._freezes = 0
        self._programs: dict[tuple[object, ...], Specialized] = {}
        self._lock = threading.Lock()

    def forward(self, *args: Any) -> list[Any]:
        return self._program(args)(args)

    def _program(self, args: Sequence[Any]) -> Specialized:
        with self._lock:
            if not all(f.still_is(args[f.position]) for f in self._frozen):
                self._programs.clear()
                self._frozen = ()
            if not self._programs and self._static:
                self._freeze(args)
            key = tuple([a.shape if isinstance(a, torch.Tensor) else a for a in args])
            found = self._programs.get(key)
            if found is None:
                if len(self._programs) >= config.dynamic_programs:
                    self._programs.pop(next(iter(self._programs)))
                found = self._programs[key] = self._made(args)
            return found

    def _freeze(self, args: Sequence[Any]) -> None:
        if self._freezes == MAX_FREEZES:
            self._static = frozenset()
            return
        self._freezes += 1
        self._frozen = tuple(Frozen(p, args[p], args[p]._version)  # noqa: SLF001
                             for p in sorted(self._static)
                             if isinstance(args[p], torch.Tensor) and not args[p].is_inference())

    def _made(self, args: Sequence[Any]) -> Specialized:
        try:
            return self._specialize(args)
        except Exception as error:
            if self._strict:
                raise
            warn_of_failure(self._report, error)
            forward = self._graph().forward
            return lambda values: forward(*values)

    def _specialize(self, args: Sequence[Any]) -> Specialized:
        frozen = {f.position for f in self._frozen}
        weights, numbers, ports, positions = {}, {}, [], []
        for position, (node, value) in enumerate(zip(self._placeholders, args, strict=True)):
            if not isinstance(value, torch.Tensor):
                numbers[node.name] = value
            elif position in frozen:
                weights[node.name] = value
            else:
                ports.append(_port(node, value))
                positions.append(position)
        outputs = [n for n in self._outputs if _is_tensor(n)]
        program = TorchProgram(self._graph().graph, weights, numbers, tuple(ports),
                               tuple(_port(n, n.meta["val"]) for n in outputs),
                               tuple(n.name for n in outputs))
        importer = GraphImporter(program)
        for port in ports:
            importer.add_input(port.name, Var(port.name, port.type))
        module = importer.run()
        numbers_made = {n: importer.value(n) for n in self._outputs if not _is_tensor(n)}
        if not outputs:
            return lambda _: [numbers_made[n] for n in self._outputs]
        compiled = compile_model(module, **self._settings)
        makers = maker_of(self._outputs, self._placeholders, args, numbers_made)

        def run(values: Sequence[Any]) -> list[Any]:
            given = compiled(*[array_of(values[p]) for p in positions])
            arrays = iter(given if isinstance(given, tuple) else (given,))
            return [make(arrays) for make in makers]

        return run


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _port(node: torch.fx.Node, value: Any) -> Port:
    # The sizes of a traced output are not asked for: the program finds its own.
    sizes = tuple(s if isinstance(s, int) else 0 for s in value.shape)
    return Port(node.name, TensorType(sizes, dtype_of(value.dtype, f"tensor {node.name!r}")))
