"""State of the translation of one loop program to LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias

from weft.codegen.ir_text.writer import FunctionWriter, ModuleWriter, ScopedMemo
from weft.ir import int64
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError, InternalError
from weft.tir import Add, Buffer, Max, Min
from weft.tir.expr import Broadcast, Cast, Div, FloorDiv, FloorMod, IntImm, Mul, PrimExpr, Ramp, Var
from weft.tir.task_scratch import TaskScratch


class AliasScopes:
    """For each buffer, the metadata suffix of its loads and stores."""

    def __init__(
        self, module: ModuleWriter, buffers: Sequence[Buffer],
        offsets: Mapping[Buffer, int | PrimExpr],
    ) -> None:
        self._suffix: dict[Buffer, str] = {}
        if len(buffers) < 2:
            return
        domain = module.metadata("distinct !{!N}")
        scopes = {b: module.metadata(f"distinct !{{!N, {domain}}}") for b in buffers}
        for buffer in buffers:
            own = module.metadata(f"!{{{scopes[buffer]}}}")
            others = [s for b, s in scopes.items() if not _may_overlap(b, buffer, offsets)]
            suffix = f", !alias.scope {own}"
            if others:
                suffix += f", !noalias {module.metadata('!{' + ', '.join(others) + '}')}"
            self._suffix[buffer] = suffix

    def suffix(self, buffer: Buffer) -> str:
        return self._suffix.get(buffer, "")


def _may_overlap(a: Buffer, b: Buffer, offsets: Mapping[Buffer, int | PrimExpr]) -> bool:
    """Whether two buffers may share memory.

    Only workspace buffers with constant offsets can: those with disjoint live ranges may be
    assigned the same bytes.
    """
    if a is b:
        return True
    if a not in offsets or b not in offsets:
        return False
    first, second = offsets[a], offsets[b]
    if isinstance(first, PrimExpr) or isinstance(second, PrimExpr):
        return False
    size_a, size_b = a.static_bytes, b.static_bytes
    if size_a is None or size_b is None:
        return True
    return first < second + size_b and second < first + size_a


# Bound of index arithmetic: extents, offsets and sizes of arrays in bytes.
INDEX_LIMIT = 2**48

# Emits the instructions of one node of a given type and returns the operand with its value.
Emitter: TypeAlias = "Callable[[FunctionState, Any], str]"
StatementEmitter: TypeAlias = "Callable[[FunctionState, Any], None]"


def generic_pointer(_: Buffer) -> str:
    """The pointer type of buffers on machines with one address space."""
    return "ptr"


def element_alignment(buffer: Buffer, _: PrimExpr, __: int) -> int:
    """The alignment that every access has, in bytes."""
    return buffer.dtype.itemsize


@dataclass(slots=True)
class Kernel:
    """State shared by all functions of one program: the kernel and its parallel bodies.

    ``written`` holds the buffers that the program writes, ``local_accesses`` the indices of each
    local buffer, ``workspace_offsets`` the byte offset of each workspace buffer, ``task_scratch``
    the memory of buffers of symbolic size in parallel loops, ``has_sizes`` whether the kernel takes
    symbolic sizes.

    The rest belongs to the back end: ``emitters`` and ``statements`` by node type, ``calls`` of its
    own intrinsics by name, the LLVM type of pointers into a buffer, the ``alignment`` in bytes of
    an access to ``lanes`` elements from an index, the ``read_only`` buffers that no thread writes
    while the kernel runs, the symbols of Python ``bodies``, whether the machine has masked
    accesses, gathers and scatters, the metadata of debug ``locations`` by the ``id`` of the
    statement, and whether a later compiler ``unrolls`` loops.
    """

    name: str
    module: ModuleWriter
    written: Mapping[Buffer, None]
    local_accesses: Mapping[Buffer, Mapping[PrimExpr, None]]
    alias: AliasScopes
    workspace_offsets: Mapping[Buffer, int | PrimExpr]
    task_scratch: Mapping[Buffer, TaskScratch]
    has_sizes: bool
    attributes: str
    emitters: Mapping[type, Emitter]
    statements: Mapping[type, StatementEmitter]
    calls: Mapping[str, Emitter] = field(default_factory=dict)
    pointer_type: Callable[[Buffer], str] = generic_pointer
    alignment: Callable[[Buffer, PrimExpr, int], int] = element_alignment
    read_only: Mapping[Buffer, None] = field(default_factory=dict)
    bodies: Collection[str] = ()
    locations: Mapping[int, str] = field(default_factory=dict)
    has_masks: bool = True
    unrolls: bool = False

    def load_suffix(self, buffer: Buffer) -> str:
        """The metadata of loads; ``!0`` is the empty node of every module."""
        invariant = ", !invariant.load !0" if buffer in self.read_only else ""
        return self.alias.suffix(buffer) + invariant


@dataclass(slots=True)
class FunctionState:
    """State of one LLVM function: its text, the operands of values, the pointers of buffers."""

    kernel: Kernel
    out: FunctionWriter
    memo: ScopedMemo = field(default_factory=ScopedMemo)
    pointers: dict[Buffer, str] = field(default_factory=dict)
    # The register slots of local buffers, by the (first element, lanes) of the access.
    slots: dict[Buffer, dict[tuple[int, int], str]] = field(default_factory=dict)
    # Variables of index arithmetic that are known to be at least 0.
    nonnegative: set[Var] = field(default_factory=set)
    # Buffers in the memory of the thread.
    on_stack: set[Buffer] = field(default_factory=set)
    in_parallel: bool = False
    workspace: str | None = None
    # Counts loads of written memory and calls. An expression whose emission increases it has side
    # effects or depends on them, and is not memoised.
    effects: int = 0

    def note_range(self, var: Var, *, nonnegative: bool) -> None:
        """Record whether ``var`` is at least 0. Loops may reuse a variable with another range."""
        if nonnegative:
            self.nonnegative.add(var)
        else:
            self.nonnegative.discard(var)

    def pointer_type(self, buffer: Buffer) -> str:
        """The LLVM type of pointers into ``buffer``: stack memory is in the generic space."""
        return "ptr" if buffer in self.on_stack else self.kernel.pointer_type(buffer)

    def pointer(self, buffer: Buffer) -> str:
        """The pointer to the first element of ``buffer``."""
        try:
            return self.pointers[buffer]
        except KeyError:
            raise InternalError(
                f"buffer {buffer.name} is used outside its allocation", where=self.kernel.name
            ) from None


def is_nonnegative(state: FunctionState, expr: PrimExpr) -> bool:
    """Whether an integer is known to be at least 0, from the ranges of loop variables.

    Sums and products qualify only as index arithmetic; on data they may overflow.
    """
    match expr:
        case IntImm():
            return expr.value >= 0
        case Var():
            return expr in state.nonnegative
        case Broadcast():
            return is_nonnegative(state, expr.value)
        case Ramp():
            return is_bounded(state, expr.base) and is_bounded(state, expr.stride)
        case Add() | Mul():
            return is_bounded(state, expr.a) and is_bounded(state, expr.b)
        case FloorDiv() | Div() | Min():
            return is_nonnegative(state, expr.a) and is_nonnegative(state, expr.b)
        case Max():
            return is_nonnegative(state, expr.a) or is_nonnegative(state, expr.b)
        case FloorMod():
            return is_nonnegative(state, expr.b)
    return False


def is_bounded(state: FunctionState, expr: PrimExpr) -> bool:
    """Whether an integer is known to lie in [0, index limit], so that sums cannot overflow."""
    match expr:
        case IntImm():
            return expr.dtype is int64 and 0 <= expr.value <= INDEX_LIMIT
        case Var():
            return expr.dtype is int64 and expr in state.nonnegative
        case Broadcast():
            return is_bounded(state, expr.value)
        case Ramp():
            return is_bounded(state, expr.base) and is_bounded(state, expr.stride)
        case Add() | Mul() | Max():
            return is_bounded(state, expr.a) and is_bounded(state, expr.b)
        case FloorDiv() | Div():
            return is_bounded(state, expr.a) and is_nonnegative(state, expr.b)
        case Min():
            a, b = expr.a, expr.b
            return is_nonnegative(state, a) and is_nonnegative(state, b) and (
                is_bounded(state, a) or is_bounded(state, b))
        case FloorMod():
            return is_bounded(state, expr.b)
        case Cast():
            source = expr.value.dtype
            return expr.dtype.element is int64 and source.code == "uint" and source.bits <= 32
    return False


def emit(state: FunctionState, expr: PrimExpr) -> str:
    """The LLVM operand with the value of ``expr``: the name of a register, or a literal.

    Recursive, so the caller raises the recursion limit for deep expressions. Expressions are
    interned, so the memo finds every repetition. ``CodegenError`` for nodes that must have been
    lowered before.
    """
    known = state.memo.known.get(expr)
    if known is not None:
        return known
    emitter = state.kernel.emitters.get(type(expr))
    if emitter is None:
        raise CodegenError(
            f"cannot generate code for {type(expr).__name__}",
            where=state.kernel.name,
            got=expr,
            help="run the tir pipeline first",
        )
    before = state.effects
    result = emitter(state, expr)
    if state.effects == before:
        state.memo.add(expr, result)
    return result
