"""The backend of ``torch.compile``: compiles the graphs that TorchDynamo traces for this CPU.

Graphs arrive as core ATen operators from AOTAutograd: forward, backward, or inference. weft
compiles the operators that it supports, in regions as large as possible; torch runs the rest. A
region is compiled at its first call, for the shapes of that call, and again for other shapes.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import torch
import torch.fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import RestartAnalysis
from torch._guards import TracingContext
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from weft.compiler.integrations.torch import fallback
from weft.compiler.integrations.torch.fallback import GraphReport
from weft.compiler.integrations.torch.partition import partition
from weft.compiler.integrations.torch.region import Region
from weft.compiler.integrations.torch.regions import split, without_trivial_regions
from weft.frontend.torch.decompositions import backend_decompositions, draws_numbers
from weft.frontend.torch.spans import target_name
from weft.frontend.torch.trial import Trial, is_known_class
from weft.support.config import config
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError, UnsupportedModelError, WeftError
from weft.support.fallback import FallbackLog

Compiled = Callable[..., Any]
_COMPILE_ARGUMENTS = ("target", "opt_level", "passes", "rules", "tir_passes")


def torch_backend(
    graph: torch.fx.GraphModule | None = None, example_inputs: Sequence[Any] = (), *,
    mode: str | None = None, options: Mapping[str, Any] | None = None, strict: bool = False,
) -> Compiled:
    """A backend of ``torch.compile``.

    ``options`` are ``strict``, the arguments ``target``, ``opt_level``, ``passes``, ``rules`` and
    ``tir_passes`` of ``weft.compile``, and settings of ``weft.config``.

    Operators that weft does not support run in torch, and one ``FallbackWarning`` per graph lists
    them. ``strict`` raises ``UnsupportedModelError`` with the same list instead:
    ``torch.compile(model, backend=weft.torch_backend(strict=True))``.

    Raises ``OptionError`` for other options.
    """
    if graph is None:
        return functools.partial(torch_backend, strict=strict)
    if mode not in (None, "default"):
        raise OptionError('the only mode is "default"', expected='"default"', got=repr(mode))
    settings = dict(options or {})
    strict = bool(settings.pop("strict", strict))
    config.check({k: v for k, v in settings.items() if k not in _COMPILE_ARGUMENTS})
    return Backend(settings, strict)(graph, example_inputs)


@dataclass(slots=True)
class Backend:
    """Compiles one graph of TorchDynamo; ``settings`` are the options that regions compile with."""

    settings: Mapping[str, Any]
    strict: bool
    trial: Trial = field(default_factory=Trial)
    reports: list[GraphReport] = field(default_factory=list)

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Compiled:
        traced = aot_autograd(
            fw_compiler=self._compiler("forward"),
            bw_compiler=self._compiler("backward"),
            inference_compiler=self._compiler("inference"),
            decompositions=backend_decompositions(),
            partition_fn=partition,
        )
        try:
            _check_classes(example_inputs)
            with _no_fused_recurrence():
                return traced(graph, example_inputs)
        except RestartAnalysis:  # TorchDynamo's own request to trace again
            raise
        except Exception as error:
            # Exceptions of torch's tracing are reasons, those of weft's own defects are not.
            if self.strict or (isinstance(error, WeftError)
                               and not fallback.may_run_in_torch(error)):
                raise
            report = GraphReport("untraced")
            fallback.publish(report)
            fallback.report_failure(report, error)
            return graph.forward
        finally:
            fallback.report_operators(self.reports)
            self.reports.clear()

    def _compiler(self, kind: str) -> Callable[[torch.fx.GraphModule, Sequence[Any]], Compiled]:
        def run(graph: torch.fx.GraphModule, _examples: Sequence[Any]) -> Compiled:
            static = _static_inputs() if kind == "inference" else frozenset()
            return _boxed(self._in_regions(graph, kind, static))

        return run

    def _in_regions(self, graph: torch.fx.GraphModule, kind: str, static: frozenset[int]
                    ) -> torch.fx.GraphModule:
        report = GraphReport(kind, log=FallbackLog(strict=self.strict))
        taken = self._taken(graph.graph, report)
        fallback.publish(report)
        if self.strict and report.unsupported:
            fallback.refuse(report)
        self.reports.append(report)
        placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
        frozen = {placeholders[i] for i in static}

        def make(inner: torch.fx.GraphModule, inputs: Sequence[torch.fx.Node]) -> Region:
            report.regions += 1
            positions = frozenset(i for i, node in enumerate(inputs) if node in frozen)
            return Region(inner, positions, self.settings, report, strict=self.strict)

        return split(graph, taken, make)

    def _taken(self, graph: torch.fx.Graph, report: GraphReport) -> set[torch.fx.Node]:
        """The nodes that weft compiles; the others are noted in ``report``."""
        taken: set[torch.fx.Node] = set()
        for node in graph.nodes:
            if node.op in ("placeholder", "output"):
                continue
            reason = self.trial.refusal(node)
            if not reason:
                taken.add(node)
            if node.target is operator.getitem:  # the call that it projects is counted
                continue
            report.calls += 1
            if not reason:
                continue
            name = target_name(node)
            report.left[name] += 1
            report.reasons.setdefault(name, reason)
            if draws_numbers(node.target):
                report.drawn.add(name)
        return without_trivial_regions(graph, taken)


@contextmanager
def _no_fused_recurrence() -> Iterator[None]:
    """Trace the steps of LSTMs, if gradients are recorded.

    torch would trace oneDNN's layer, whose backward reads a workspace in a format of oneDNN's own.
    """
    enabled = torch._C._get_mkldnn_enabled()  # noqa: SLF001 - what the public flags set
    torch._C._set_mkldnn_enabled(enabled and not torch.is_grad_enabled())  # noqa: SLF001
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)  # noqa: SLF001


def _check_classes(inputs: Sequence[Any]) -> None:
    """Refuse tensor subclasses that AOTAutograd would trace as plain tensors."""
    for value in inputs:
        if isinstance(value, torch.Tensor) and not is_known_class(value) \
                and not is_traceable_wrapper_subclass(value):
            raise UnsupportedModelError("an input is of a subclass of torch.Tensor",
                                        got=type(value).__qualname__)


def _static_inputs() -> frozenset[int]:
    """The positions of parameters and buffers among the inputs of the graph being compiled."""
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return frozenset(metadata.static_input_indices or ()) if metadata is not None else frozenset()


def _boxed(graph: torch.fx.GraphModule) -> Compiled:
    """The function that AOTAutograd calls with a list, emptied so that arguments can be freed."""
    forward = graph.forward

    def run(args: list[Any]) -> Any:
        values = tuple(args)
        args.clear()
        return forward(*values)

    run._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001 - what AOTAutograd reads
    return run
