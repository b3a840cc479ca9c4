"""``torch.compile(model, backend="weft")``: what TorchDynamo traces, compiled for this CPU.

Graphs arrive as core ATen operators from AOTAutograd. They are compiled when they are first
called, with the sizes of that call, and again for other sizes. Parameters and buffers are
constants where no gradients are recorded, so that they are folded and packed; a change to one of
them is noticed, and the graph compiled again. Where gradients are recorded weft runs the forward
graph and torch the backward one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.fx
from torch._decomp import core_aten_decompositions
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import TracingContext

from weft.compiler.api import compile as compile_model
from weft.frontend.torch.coverage import check_coverage
from weft.frontend.torch.dtypes import dtype_of
from weft.frontend.torch.importer import GraphImporter, array_of
from weft.frontend.torch.program import Port, TorchProgram, without_kept
from weft.ir.expr import Var
from weft.ir.types import TensorType
from weft.support.config import config
from weft.support.errors import OptionError

Compiled = Callable[..., Any]

# A graph whose weights change again and again takes them as inputs.
MAX_FREEZES = 3


def torch_backend(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Compiled:
    """A backend of ``torch.compile``; ``options`` are ``target``, ``opt_level`` and knobs.

    Raises ``OptionError`` for other options, and ``UnsupportedModelError``, naming everything at
    once, for operators that weft lacks.
    """
    if mode not in (None, "default"):
        raise OptionError("weft has one mode", expected='"default"', got=repr(mode))
    settings = dict(options or {})
    config.check({k: v for k, v in settings.items() if k not in ("target", "opt_level")})

    def compiler(*, freeze: bool) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Compiled]:
        def run(inner: torch.fx.GraphModule, _examples: Sequence[Any]) -> Compiled:
            check_coverage(inner.graph, "a graph traced by torch.compile")
            frozen = _static_inputs() if freeze else frozenset()
            return make_boxed_func(CompiledGraph(inner.graph, frozen, settings))

        return run

    backend = aot_autograd(
        fw_compiler=compiler(freeze=False), inference_compiler=compiler(freeze=True),
        bw_compiler=lambda inner, _: make_boxed_func(inner.forward),
        decompositions=without_kept(core_aten_decompositions()),
    )
    return backend(graph, example_inputs)


def _static_inputs() -> frozenset[int]:
    """Which inputs of the graph being compiled are parameters and buffers of a module."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return frozenset(metadata.static_input_indices or ()) if metadata is not None else frozenset()


@dataclass(frozen=True, slots=True)
class Frozen:
    """A weight that was compiled in; ``version`` counts the changes that torch makes to it."""

    position: int
    tensor: torch.Tensor
    version: int

    def still_is(self, value: Any) -> bool:
        return value is self.tensor and value._version == self.version  # noqa: SLF001


@dataclass(frozen=True, slots=True)
class Specialized:
    """A program for one set of sizes, ``None`` where no result is a tensor.

    ``positions`` says which arguments are its inputs. A result is a tensor, by its position among
    the outputs, or a number.
    """

    run: Callable[..., Any] | None
    positions: tuple[int, ...]
    results: tuple[tuple[bool, Any], ...]


class CompiledGraph:
    """One traced graph; called with tensors and sizes, as torch flattens them."""

    def __init__(self, graph: torch.fx.Graph, static: frozenset[int],
                 settings: Mapping[str, Any]) -> None:
        self._graph = graph
        self._placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        self._outputs = next(n for n in graph.nodes if n.op == "output").args[0]
        self._static = static
        self._settings = settings
        self._frozen: tuple[Frozen, ...] = ()
        self._freezes = 0
        self._programs: dict[tuple[object, ...], Specialized] = {}
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> list[Any]:
        program = self._program(args)
        arrays = [array_of(args[p]) for p in program.positions]
        given = () if program.run is None else program.run(*arrays)
        made = given if isinstance(given, tuple) else (given,)
        return [tensor_of(made[value]) if is_tensor else value
                for is_tensor, value in program.results]

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
                found = self._programs[key] = self._specialize(args)
            return found

    def _freeze(self, args: Sequence[Any]) -> None:
        if self._freezes == MAX_FREEZES:
            self._static = frozenset()
            return
        self._freezes += 1
        self._frozen = tuple(Frozen(p, args[p], args[p]._version)  # noqa: SLF001
                             for p in sorted(self._static)
                             if isinstance(args[p], torch.Tensor) and not args[p].is_inference())

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
        program = TorchProgram(self._graph, weights, numbers, tuple(ports),
                               tuple(_port(n, n.meta["val"]) for n in outputs),
                               tuple(n.name for n in outputs))
        importer = GraphImporter(program)
        for port in ports:
            importer.add_input(port.name, Var(port.name, port.type))
        module = importer.run()
        compiled = compile_model(module, **self._settings) if outputs else None
        results, count = [], 0
        for node in self._outputs:
            results.append((True, count) if _is_tensor(node) else (False, importer.value(node)))
            count += _is_tensor(node)
        return Specialized(compiled, tuple(positions), tuple(results))


def _is_tensor(node: Any) -> bool:
    return isinstance(node, torch.fx.Node) and isinstance(node.meta.get("val"), torch.Tensor)


def _port(node: torch.fx.Node, value: Any) -> Port:
    # The sizes of a traced output are not asked for: the program finds its own.
    sizes = tuple(s if isinstance(s, int) else 0 for s in value.shape)
    return Port(node.name, TensorType(sizes, dtype_of(value.dtype, f"tensor {node.name!r}")))


def tensor_of(array: np.ndarray) -> torch.Tensor:
    """A tensor over the array's memory."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
