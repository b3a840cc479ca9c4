"""What the page of ``weft view`` shows of a compiled model, as values that JSON takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np

from weft.codegen import backend_of
from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.decisions import KeepBeforeLegalize, calls_of, kernel_selections
from weft.compiler.pipeline import PHASE_NAMES
from weft.compiler.program.lowering import try_lower_program
from weft.compiler.program.memory_plan import live_ranges, plan_memory
from weft.compiler.program.program import KernelSource, Program
from weft.compiler.report.page import random_inputs
from weft.compiler.report.view.graph import GraphFacts, graph_facts, node_names
from weft.compiler.stages import Stages, kernel_texts, kernels_of
from weft.ir import Constant, IRModule, post_order
from weft.ir.drawing import drawn_nodes
from weft.ir.instruments import readable
from weft.runtime.executable import Executable
from weft.runtime.profile import lane_of
from weft.strategy.decision import decision_of
from weft.strategy.explain import call_text
from weft.support import progress

HISTOGRAM_BARS = 32
# Characters of the text of a phase or of a kernel at one stage; browsers show more slowly.
MAX_TEXT = 200_000


class PhaseFacts(GraphFacts):
    """A phase of the compilation."""

    text: str


class ViewFacts(TypedDict):
    """One compilation. Times are in seconds, sizes in bytes."""

    title: str
    target: str
    signature: str
    module_seconds: float
    limit_seconds: float
    arena: int | None  # of the executable; ``None`` where it follows from sizes
    fallbacks: list[str]
    phases: dict[str, PhaseFacts]
    decisions: dict[str, str]  # node of the model -> the algorithm chosen for it, and why
    kernels: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    memory: dict[str, Any]
    weights: list[dict[str, Any]]


def view_facts(module: Executable, title: str) -> ViewFacts:
    """Everything about ``module``, timed on random inputs; compiles up to each stage again.

    Raises what ``Executable.profile`` raises; ``OptionError`` for a module without its source.
    """
    stages: Stages = module.recompiler.stages  # type: ignore[union-attr, attr-defined]
    with progress.task("looking at the compilation", 5) as task:
        keep = KeepBeforeLegalize()
        modules = {name: stages.module_at(name, keep) for name in PHASE_NAMES}
        task.advance("phases")
        with stages.options.settings():
            program = try_lower_program(modules["lowered"])
            sources = kernels_of(modules["lowered"])
            kernels = _kernels(sources, stages)
            decisions = _decisions(keep.module, stages)
        task.advance("kernels")
        profile = module.profile(*random_inputs(module), repeat=5)
        task.advance("times")
        memory = _memory(program)
        weights = _weights(modules["import"])
        task.advance("memory and weights")
        limits = [limit.seconds for limit in profile.limits] or [None] * len(profile.steps)
        calls = [{"symbol": step.call.symbol, "op": step.call.op, "lane": lane_of(step.call),
                  "start": step.start, "seconds": step.seconds, "limit": limit, "flops": step.flops,
                  "bytes": step.bytes_moved, "implementation": step.call.implementation}
                 for step, limit in zip(profile.steps, limits, strict=True)]
        names = KernelSet.of(sources)
        phases = {name: _phase(mod, names) for name, mod in modules.items()}
        task.advance("graphs")
    arena = module.manifest.arena_bytes
    return {"title": title, "target": str(stages.options.target),
            "signature": module.manifest.signature(), "module_seconds": profile.module_seconds,
            "arena": arena if isinstance(arena, int) else None,
            "limit_seconds": profile.limit_seconds if profile.limits else 0.0,
            "fallbacks": [one.text() for one in module.fallbacks.found], "phases": phases,
            "decisions": decisions, "kernels": kernels, "calls": calls, "memory": memory,
            "weights": weights}


def _phase(mod: IRModule, kernels: KernelSet) -> PhaseFacts:
    """The text of a phase, and its graph."""
    graph = graph_facts(drawn_nodes(mod["main"]),
                        lambda function: kernels.sources[kernels.number_of(function)].name)
    return {"text": _shortened(readable(mod)), **graph}


def _kernels(sources: tuple[KernelSource, ...], stages: Stages) -> list[dict[str, Any]]:
    """Each kernel with its types, its decision and its text at every stage below the graph."""
    target = stages.options.target
    names = ("te", "scheduled", "tir", *backend_of(target).text_stages)
    texts = {name: list(kernel_texts(sources, stages.options, name)) for name in names}
    return [{"symbol": source.name, "op": source.text,
             "takes": [str(param.checked_type) for param in source.function.params],
             "gives": str(source.function.body.checked_type),
             "decision": "\n".join(one.text for one in kernel_selections([source], target)),
             "texts": {name: _shortened(texts[name][number]) for name in names}}
            for number, source in enumerate(sources)]


def _decisions(mod: IRModule | None, stages: Stages) -> dict[str, str]:
    """The decisions of operator families, by the names of the calls before legalisation."""
    found = {}
    for call in () if mod is None else calls_of(mod):
        decision = decision_of(call, stages.options.target)
        if decision is not None:
            found.update(dict.fromkeys(node_names(call), f"{call_text(call)}: {decision}"))
    return found


def _memory(program: Program | None) -> dict[str, Any]:
    """Live ranges and offsets of the temporaries of a program of fixed sizes.

    The plan leaves out workspaces and results in place, which are known when kernels are built.
    """
    if program is None or program.is_symbolic:
        return {"arena": 0, "steps": 0, "buffers": []}
    plan = plan_memory(program, {})
    ranges = live_ranges(program.steps, program.jumps)
    buffers = [{"offset": plan.temporaries[number], "size": program.temporaries[number],
                "first": live.first, "last": live.last} for number, live in ranges.items()]
    return {"arena": sum(plan.arena_bytes), "steps": len(program.steps), "buffers": buffers}


def _weights(mod: IRModule) -> list[dict[str, Any]]:
    """Constants of more than one element, largest first, with their distributions."""
    found = {id(node.data): node for function in mod.functions.values()
             for node in post_order(function) if isinstance(node, Constant)}
    arrays = [((node.span and node.span.node) or "", np.asarray(node.data))
              for node in found.values()]
    chosen = sorted((a for a in arrays if a[1].size > 1), key=lambda a: -a[1].nbytes)
    return [_weight(name, array) for name, array in chosen]


def _weight(name: str, array: np.ndarray) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": name, "shape": list(array.shape), "dtype": str(array.dtype),
                             "bytes": array.nbytes}
    if array.dtype.kind not in "fiu":
        return facts
    values = array.astype(np.float32).ravel()
    finite = values[np.isfinite(values)]
    counts, edges = np.histogram(finite, HISTOGRAM_BARS) if finite.size else ([], [0, 0])
    return {**facts, "low": float(edges[0]), "high": float(edges[-1]),
            "zeros": int((values == 0).sum()), "not_finite": int(values.size - finite.size),
            "histogram": np.asarray(counts).tolist()}


def _shortened(text: str) -> str:
    if len(text) <= MAX_TEXT:
        return text
    return f"{text[:MAX_TEXT]}\n... {len(text) - MAX_TEXT} more characters"


def compared(one: ViewFacts, other: ViewFacts) -> list[Mapping[str, Any]]:
    """The kernels of two compilations beside each other, by the text of their operators.

    Kernels of equal text are joined; the largest difference comes first.
    """
    rows: dict[str, dict[str, Any]] = {}
    for side, facts in enumerate((one, other)):
        for call in facts["calls"]:
            row = rows.setdefault(call["op"], {"op": call["op"], "one": 0.0, "other": 0.0,
                                               "implementations": [[], []]})
            row["other" if side else "one"] += call["seconds"]
            names = row["implementations"][side]
            if call["implementation"] not in names:
                names.append(call["implementation"])
    for row in rows.values():
        row["implementations"] = [", ".join(names) for names in row["implementations"]]
    return sorted(rows.values(), key=lambda row: -abs(row["one"] - row["other"]))
