"""Partition a program into regions for external code generators."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters, known_type, over_new_children
from weft.transform.analysis.regions import convex_regions
from weft.transform.analysis.scopes import Scopes
from weft.transform.external.codegen import EXTERNAL_CODEGENS, ExternalCodegen
from weft.transform.external.merge_composite import is_composite, merge_patterns
from weft.transform.fusion.levels import under_let
from weft.transform.normal_form.alpha import fresh_copy


@ir.register_pass
@dataclass(frozen=True)
class PartitionGraph(ir.Pass):
    """Move the largest regions of ``entry`` that code generator ``compiler`` supports.

    Each region becomes a global function with the attribute ``compiler``. Calls of composites
    (``merge_composite`` runs first) are supported as a whole. Regions are convex: no path leaves
    one and re-enters it. Regions with fewer than ``min_calls`` calls stay in place.

    With a generator ``acc`` that supports ``nn.dense`` and ``nn.relu``:

    def @main(%x: Tensor[(4, 4), float32], %w: Tensor[(4, 4), float32]) {
      exp(nn.relu(nn.dense(%x, %w)))
    }
    =>
    def @main(%x: Tensor[(4, 4), float32], %w: Tensor[(4, 4), float32]) { exp(@acc_main_0(%x, %w)) }
    def @acc_main_0(%a: Tensor[(4, 4), float32], %b: Tensor[(4, 4), float32], compiler="acc") {
      nn.relu(nn.dense(%a, %b))
    }
    """

    name: ClassVar[str] = "partition_graph"
    opt_level: ClassVar[int] = 0
    compiler: str = ""
    entry: str = "main"
    min_calls: int = 1

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        codegen = EXTERNAL_CODEGENS.get(self.compiler)
        merged = merge_patterns(mod[self.entry], codegen.patterns)
        supported = _supported_nodes(merged, codegen)
        regions = convex_regions(merged.body, supported)
        kept = [r for r in regions if sum(isinstance(n, ir.Call) for n in r) >= self.min_calls]
        if not kept:
            return mod
        cut = _Cut(merged, kept, f"{self.compiler}_{self.entry}", set(mod.functions))
        changed = {self.entry: cut.run()}
        for name, region in cut.functions.items():
            changed[name] = region.replace(attrs={"compiler": self.compiler})
        return mod.with_functions(changed)


def _supported_nodes(fn: ir.Function, codegen: ExternalCodegen) -> set[ir.Expr]:
    """The supported calls of the outermost scope, and the tuples of their values."""
    scopes = Scopes(fn.body)
    named = under_let(scopes)
    found: set[ir.Expr] = set()
    for node in scopes.order:
        is_outer = scopes.scope_of[node] is scopes.root and node not in named
        if is_outer and _is_supported(node, codegen, found):
            found.add(node)
    return found


def _is_supported(node: ir.Expr, codegen: ExternalCodegen, taken: set[ir.Expr]) -> bool:
    if isinstance(node, ir.Call):
        if isinstance(node.op, ir.Op):
            return codegen.supports(node)
        names = {p.name for p in codegen.patterns}
        return is_composite(node) and as_function(node.op).attrs["composite"] in names
    if isinstance(node, ir.TupleGetItem):
        return node.tuple_value in taken
    return isinstance(node, ir.Tuple) and bool(node.fields) and all(f in taken for f in node.fields)


class _Cut:
    """Replaces the regions of one function by calls of new functions."""

    def __init__(
        self, fn: ir.Function, regions: Sequence[Sequence[ir.Expr]], prefix: str, taken: set[str]
    ) -> None:
        self.fn = fn
        self.regions = regions
        self.region_of = {node: i for i, nodes in enumerate(regions) for node in nodes}
        self.inputs = [self._inputs(i) for i in range(len(regions))]
        self.outputs = self._outputs()
        free = (n for n in map(f"{prefix}_{{}}".format, itertools.count()) if n not in taken)
        self.names = [name for name, _ in zip(free, regions, strict=False)]
        self.functions: dict[str, ir.Function] = {}
        self.memo: dict[ir.Expr, ir.Expr] = {}

    def run(self) -> ir.Function:
        for index in range(len(self.regions)):
            self.functions[self.names[index]] = self._function(index)
        pending: list[ir.Expr] = [self.fn]
        while pending:
            node = pending[-1]
            missing = [d for d in self._needs(node) if d not in self.memo]
            if node in self.memo or not missing:
                pending.pop()
                self._rewrite(node)
            else:
                pending.extend(missing)
        return as_function(self.memo[self.fn])

    def _needs(self, node: ir.Expr) -> Sequence[ir.Expr]:
        index = self.region_of.get(node)
        if index is not None:
            return self.inputs[index]
        return ir.children(node) if enters(node) else ()

    def _rewrite(self, node: ir.Expr) -> None:
        if node in self.memo:
            return
        index = self.region_of.get(node)
        if index is not None:
            self._call(index)
            return
        self.memo[node] = over_new_children(node, self.memo.__getitem__)

    def _inputs(self, index: int) -> list[ir.Expr]:
        operands = (c for n in self.regions[index] for c in ir.children(n))
        return [
            c for c in dict.fromkeys(operands)
            if self.region_of.get(c) != index and not isinstance(c, (ir.Constant, ir.Function))
        ]

    def _outputs(self) -> list[list[ir.Expr]]:
        """For each region, the nodes that are used outside of it."""
        found: list[dict[ir.Expr, None]] = [{} for _ in self.regions]
        for node in ir.post_order(self.fn, enter=enters):
            for child in ir.children(node) if enters(node) else ():
                index = self.region_of.get(child)
                if index is not None and self.region_of.get(node) != index:
                    found[index][child] = None
        return [list(nodes) for nodes in found]

    def _function(self, index: int) -> ir.Function:
        inputs, outputs = self.inputs[index], self.outputs[index]
        params = tuple(
            ir.Var(x.name if isinstance(x, ir.Var) else f"in{i}", known_type(x), span=x.span)
            for i, x in enumerate(inputs)
        )
        result = outputs[0] if len(outputs) == 1 else ir.Tuple(tuple(outputs))
        body = fresh_copy(result, dict(zip(inputs, params, strict=True)))
        return ir.Function(params, body, span=outputs[0].span)

    def _call(self, index: int) -> None:
        args = tuple(self.memo[x] for x in self.inputs[index])
        outputs = self.outputs[index]
        span = outputs[0].span
        call = ir.Call(ir.GlobalVar(self.names[index], span=span), args, span=span)
        for i, node in enumerate(outputs):
            self.memo[node] = call if len(outputs) == 1 else ir.TupleGetItem(call, i,
                                                                             span=node.span)
