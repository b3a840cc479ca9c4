"""Replaces loops that a schedule marked for a tensor instruction by calls of the instruction.

Loops that do not match, such as tails shorter than the instruction or guarded loops, stay loops
with the reason as the annotation ``not_tensorized``.
"""

from __future__ import annotations

from weft.tir import stmt as s
from weft.tir.expr import Var, int_value
from weft.tir.func import PrimFunc
from weft.tir.instruction import INSTRUCTIONS
from weft.tir.match_instruction import NoMatchError, match_instruction
from weft.tir.stmt import Stmt
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.visitor import has_annotation, map_body, substitute, without_annotation

ANNOTATION = "tensorize"


class _Tensorizer(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        name = node.annotations.get(ANNOTATION)
        if name is None:
            return super().loop(node)
        plain = without_annotation(node, ANNOTATION)
        bound: list[Var] = []
        try:
            loops, store = self._peel(node, bound)
            return match_instruction(loops, store, INSTRUCTIONS.get(name), self.analyzer)
        except NoMatchError as reason:
            notes = {**plain.annotations, "not_tensorized": str(reason)}
        finally:
            for var in bound:
                self.analyzer.release(var)
        return super().loop(plain.replace(annotations=notes))

    def _peel(self, node: Stmt, bound: list[Var]) -> tuple[list[tuple[Var, int]], s.BufferStore]:
        """The loops of a perfect nest, normalised to start at zero and bound in the analyzer."""
        loops: list[tuple[Var, int]] = []
        while isinstance(node, s.For):
            extent = int_value(self.expr(node.extent))
            if extent is None:
                raise NoMatchError(f"the extent of loop {node.loop_var.name} is not constant")
            self.analyzer.bind(node.loop_var, 0, extent)
            bound.append(node.loop_var)
            loops.append((node.loop_var, extent))
            body = node.body
            if int_value(node.min) != 0:
                body = substitute(body, {node.loop_var: node.loop_var + node.min})
            node = body
        if not isinstance(node, s.BufferStore):
            raise NoMatchError("it has a guard" if isinstance(node, s.IfThenElse)
                               else "it is not a perfect nest around one store")
        return loops, node


def tensorize_loop(func: PrimFunc) -> PrimFunc:
    """Replace the loops of tensor instructions by their calls.

    for i in range(4):
        for j in range(16):  # tensorize = fma16
            C[i, j] = C[i, j] + A[i] * B[j]
    =>
    for i in range(4):
        C[i, ramp(0, 1, 16)] = fma16(C[i, ramp(0, 1, 16)], A[i], B[ramp(0, 1, 16)])
    """
    if not has_annotation(func.body, ANNOTATION):
        return func
    return map_body(func, _Tensorizer(func).visit)
