"""One region of a traced graph: compiled per input shape, with torch as the fallback.

If no gradients are recorded, parameters and buffers are compiled as constants, so that they are
folded and packed. When one of them changes, the region is compiled again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter, is_, itemgetter
from typing import Any, Literal

import torch
import torch.fx

from weft.compiler.integrations.torch.fallback import (
    GraphReport,
    may_run_in_torch,
    report_failure,
    report_shapes,
    report_weights,
)
from weft.compiler.integrations.torch.general import GeneralRegion, general_region
from weft.compiler.integrations.torch.specialize import Specialized, specialize
from weft.support.config import config
from weft.support.errors import WeftError
from weft.support.fallback import FallbackLog, recording, report_all

_version = attrgetter("_version")  # counts the changes that torch makes to a tensor


class Weights:
    """The tensors at ``positions`` of the arguments, with their present versions."""

    def __init__(self, args: Sequence[Any], positions: Iterable[int]) -> None:
        self.positions = tuple(p for p in sorted(positions) if isinstance(args[p], torch.Tensor)
                               and not args[p].is_inference())
        self._take = _taker(self.positions)
        self._tensors = self._take(args)
        self._versions = tuple(map(_version, self._tensors))

    def are_in(self, args: Sequence[Any]) -> bool:
        """Whether the arguments hold the same tensors, unchanged."""
        given = self._take(args)
        return all(map(is_, given, self._tensors)) \
            and tuple(map(_version, given)) == self._versions


def _taker(positions: tuple[int, ...]) -> Any:
    if len(positions) < 2:  # itemgetter gives a tuple from two on
        return lambda args: tuple(args[p] for p in positions)
    return itemgetter(*positions)


# After so many changes of its weights a region takes them as inputs.
MAX_FREEZES = 3


class Region:
    """Called with tensors and numbers; ``static`` are the argument positions of weights.

    If weft cannot compile or run it, ``strict`` raises the error; otherwise torch runs the region.
    A defect of weft is raised.
    """

    def __init__(self, graph: torch.fx.GraphModule, static: frozenset[int],
                 settings: Mapping[str, Any], report: GraphReport, *, strict: bool) -> None:
        self.graph = graph
        self.__name__ = "weft_region"  # torch writes it into the code that calls regions
        self._varying = _varying(graph.graph)
        self._static = static
        self._settings = settings
        self._report = report
        self._strict = strict
        self._weights: Weights | None = None
        self._freezes = 0
        self._programs: dict[tuple[object, ...], Specialized] = {}
        self._general: GeneralRegion | Literal[False] | None = None
        self._lock = threading.Lock()

    def __call__(self, *args: Any) -> list[Any]:
        key, program = self._program(args)
        try:
            return program(args)
        except Exception as error:
            if self._strict or program == self._in_torch or not may_run_in_torch(error):
                raise
            report_failure(self._report, error)
            self._programs[key] = self._in_torch
            return self._in_torch(args)

    def _in_torch(self, args: Sequence[Any]) -> list[Any]:
        return self.graph.forward(*args)

    def _program(self, args: Sequence[Any]) -> tuple[tuple[object, ...], Specialized]:
        with self._lock:
            if self._weights is not None and not self._weights.are_in(args):
                self._programs.clear()
                self._weights = self._general = None
            if not self._programs and self._static:
                self._freeze(args)
            given = [args[p] for p in self._varying]
            key = tuple([a.shape if isinstance(a, torch.Tensor) else a for a in given])
            found = self._programs.get(key)
            if found is None:
                if len(self._programs) >= config.dynamic_programs:
                    self._programs.pop(next(iter(self._programs)))
                found = self._programs[key] = self._made(args)
            return key, found

    def _freeze(self, args: Sequence[Any]) -> None:
        if self._freezes == MAX_FREEZES:
            report_weights(self._report, self._freezes)
            self._static = frozenset()
            return
        self._freezes += 1
        self._weights = Weights(args, self._static)

    def _made(self, args: Sequence[Any]) -> Specialized:
        frozen = frozenset(self._weights.positions if self._weights is not None else ())
        general = self._general_program(args, frozen)
        found = None if general is None else general.at(args)
        if found is not None:
            return found
        try:
            with recording(self._report.log):
                return specialize(self.graph.graph, args, frozen, self._settings)
        except Exception as error:
            if self._strict or not may_run_in_torch(error):
                raise
            report_failure(self._report, error)
            return self._in_torch

    def _general_program(self, args: Sequence[Any], frozen: frozenset[int]
                         ) -> GeneralRegion | None:
        """The program for all sizes; ``None`` if sizes do not vary, or weft needs them fixed."""
        if not self._varying or not config.symbolic_sizes:
            return None
        within = None
        if self._general and self._general.is_contradicted(args):
            within, self._general = self._general.equal, None
        if self._general is None:
            try:
                with recording(FallbackLog(is_trial=True)) as trial:
                    self._general = general_region(self.graph.graph, args, frozen, self._settings,
                                                   within)
            except WeftError as error:
                if not may_run_in_torch(error):
                    raise
                report_shapes(self._report, error)
                self._general = False
            else:
                with recording(self._report.log):
                    report_all(trial.found)
        return self._general or None


def _varying(graph: torch.fx.Graph) -> tuple[int, ...]:
    """The positions of numbers, and of tensors with sizes traced as symbols.

    TorchDynamo guards all other sizes.
    """
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    return tuple(p for p, n in enumerate(placeholders) if not _is_fixed(n.meta.get("val")))


def _is_fixed(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and all(isinstance(s, int) for s in value.shape)
