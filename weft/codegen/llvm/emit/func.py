"""LLVM module of a loop program: the kernel function and one function per parallel loop."""

from __future__ import annotations

from collections.abc import Mapping

from weft.codegen.ir_text.emit.expr import EMITTERS
from weft.codegen.ir_text.emit.state import (
    AliasScopes,
    FunctionState,
    Kernel,
    StatementEmitter,
    is_nonnegative,
)
from weft.codegen.ir_text.emit.stmt import STATEMENTS, emit_serial_for, emit_stmt
from weft.codegen.ir_text.types import value_type
from weft.codegen.ir_text.writer import FunctionWriter, ModuleWriter
from weft.codegen.llvm.emit.parallel import emit_parallel
from weft.codegen.uses import Uses, collect_uses
from weft.ir import int64
from weft.support.errors import InternalError, LoweringError
from weft.support.interpreter import deep_recursion
from weft.target import CpuTarget
from weft.tir import Buffer, ForKind, PrimExpr, PrimFunc, int_value
from weft.tir import stmt as s
from weft.tir.parallel_condition import PARALLEL_IF


def _emit_attr(state: FunctionState, node: s.AttrStmt) -> None:
    if node.key == PARALLEL_IF and isinstance(node.body, s.For):
        _emit_for(state, node.body, node.value)
    else:
        emit_stmt(state, node.body)


def _emit_for(state: FunctionState, node: s.For, parallel_if: PrimExpr | None = None) -> None:
    if node.kind is ForKind.THREAD_BINDING:  # of a program that no back end has lowered
        raise LoweringError(
            f"a loop bound to {node.thread_tag} is not supported on targets of kind 'cpu'",
            where=state.kernel.name, got=f"loop {node.loop_var.name}")
    if node.kind not in (ForKind.SERIAL, ForKind.PARALLEL) or node.loop_var.dtype is not int64:
        raise InternalError(
            f"a {node.kind.value} loop over {node.loop_var.dtype} reached code generation",
            where=state.kernel.name,
        )
    extent = int_value(node.extent)
    if extent is not None and extent <= 0:
        return
    state.note_range(node.loop_var, nonnegative=is_nonnegative(state, node.min))
    # A pool runs one loop at a time, so a nested parallel loop is serial.
    if node.kind is ForKind.PARALLEL and not state.in_parallel:
        emit_parallel(state, node, emit_stmt, parallel_if)
    else:
        emit_serial_for(state, node)


CPU_STATEMENTS: Mapping[type, StatementEmitter] = {
    **STATEMENTS,
    s.AttrStmt: _emit_attr,
    s.For: _emit_for,
}


def write_module(func: PrimFunc, target: CpuTarget, data_layout: str) -> str:
    """LLVM IR of one lowered function, whose symbol is ``func.name``.

    ``data_layout`` is the data layout string of the target machine.
    """
    module = ModuleWriter(func.name, target)
    module.metadata("!{}")  # !0: the empty node that !invariant.load refers to
    uses = collect_uses(func.body)
    offsets = func.attrs.get("workspace_offsets", {})
    buffers = [p for p in func.params if isinstance(p, Buffer)]
    scratch = [b for b in uses.buffers if b not in buffers and b.scope != "local"]
    kernel = Kernel(
        name=func.name,
        module=module,
        written=uses.written,
        local_accesses=uses.local_accesses,
        alias=AliasScopes(module, [*buffers, *scratch], offsets),
        workspace_offsets=offsets,
        task_scratch=func.attrs.get("task_scratch", {}),
        has_sizes=len(buffers) < len(func.params),
        attributes=function_attributes(target),
        emitters=EMITTERS,
        statements=CPU_STATEMENTS,
    )
    with deep_recursion():
        _emit_kernel(kernel, func, uses)
    return module.text(data_layout)


def function_attributes(target: CpuTarget) -> str:
    """Attributes of every function: the full vector width, no unwinding, no frame pointer."""
    attributes = ["nounwind"]
    if target.arch == "x86_64":
        # For some CPUs with AVX-512, LLVM prefers 256 bits and would split wider vectors.
        width = target.vector_bits
        attributes += [f'"prefer-vector-width"="{width}"', f'"min-legal-vector-width"="{width}"']
    return " ".join(attributes)


def _emit_kernel(kernel: Kernel, func: PrimFunc, uses: Uses) -> None:
    state = FunctionState(kernel, FunctionWriter(kernel.module))
    params: list[str] = []
    for index, param in enumerate(func.params):
        if isinstance(param, Buffer):
            state.pointers[param] = f"%p{index}"
            access = "" if param in uses.written else " readonly"
            params.append(f"ptr noalias{access} %p{index}")
        else:
            state.memo.add(param, f"%p{index}")
            state.note_range(param, nonnegative=True)  # symbolic sizes
            params.append(f"{value_type(param.dtype)} %p{index}")
    if func.attrs.get("workspace_bytes"):
        state.workspace = "%workspace"
        params.append("ptr noalias align 64 %workspace")
    emit_stmt(state, func.body)
    state.out.do("ret void")
    header = f"define void @{func.name}({', '.join(params)}) {kernel.attributes}"
    kernel.module.functions.append(state.out.text(header))
