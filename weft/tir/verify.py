"""The verifier of loop programs: scopes, dtypes, and properties established by passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.support.errors import WellFormedError
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad, PrimExpr, Var
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import INTRINSICS
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.check_local import is_constant_access
from weft.tir.visitor import all_exprs, exprs_of, post_order, post_order_stmts, stmts_of

_Check = Callable[[PrimFunc], "str | None"]


class _Verifier:
    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.bound: set[Var] = {p for p in func.params if isinstance(p, Var)}
        self.memory: set[Buffer] = {p for p in func.params if isinstance(p, Buffer)}

    def fail(self, what: str, where: object) -> None:
        raise WellFormedError(f"{self.func.name}: {what}", where=where)

    def stmt(self, node: Stmt) -> None:
        for root in exprs_of(node):
            nodes = list(post_order(root))
            lets = {e.var for e in nodes if type(e) is x.Let}
            for e in nodes:
                self.expr(e, lets)
        match node:
            case s.For():
                self._loop(node)
            case s.LetStmt():
                if node.var.dtype is not node.value.dtype:
                    self.fail(f"{node.var} is bound to a value of {node.value.dtype}", node.value)
                self._scoped(node.var, node.body)
            case s.Allocate():
                if node.buffer in self.memory:
                    self.fail(f"nested allocation of buffer {node.buffer.name}", None)
                self.memory.add(node.buffer)
                self.stmt(node.body)
                self.memory.discard(node.buffer)
            case s.BufferStore():
                self._store(node)
            case _:
                for inner in stmts_of(node):
                    self.stmt(inner)

    def _loop(self, node: s.For) -> None:
        if node.kind in (ForKind.VECTORIZED, ForKind.UNROLLED) and node.extent.dtype.lanes != 1:
            self.fail("the extent of a loop is a vector", node.extent)
        if node.loop_var in self.bound:
            self.fail(f"nested loops over the same variable {node.loop_var}", None)
        self._scoped(node.loop_var, node.body)

    def _scoped(self, var: Var, body: Stmt) -> None:
        self.bound.add(var)
        self.stmt(body)
        self.bound.discard(var)

    def _store(self, node: s.BufferStore) -> None:
        expected = node.buffer.dtype.vector(x.access_lanes(node.indices))
        self._access(node.buffer, node.indices, node.predicate)
        if node.value.dtype is not expected:
            self.fail(f"store of {node.value.dtype} to elements of {expected}", node)

    def _access(self, buffer: Buffer, indices: tuple[PrimExpr, ...], mask: PrimExpr | None) -> None:
        if buffer not in self.memory:
            self.fail(f"buffer {buffer.name} is accessed outside of its allocation", None)
        if len(indices) != buffer.ndim:
            self.fail(f"buffer {buffer.name} of rank {buffer.ndim} with {len(indices)} indices",
                      indices)
        for index in indices:
            if not index.dtype.is_int:
                self.fail(f"index of buffer {buffer.name} has dtype {index.dtype}", index)
        lanes = x.access_lanes(indices)
        if mask is not None and mask.dtype is not x.bool_.vector(lanes):
            self.fail(f"predicate of an access to {buffer.name} has dtype {mask.dtype}", mask)

    def expr(self, e: PrimExpr, lets: set[Var]) -> None:
        if type(e) is Var:
            if e not in self.bound and e not in lets:
                self.fail(f"unbound variable: {e.name}", e)
        elif isinstance(e, x.Binary) and e.a.dtype is not e.b.dtype:
            self.fail(f"operands have different dtypes: {e.a.dtype} and {e.b.dtype}", e)
        elif type(e) is x.Select and e.true_value.dtype is not e.false_value.dtype:
            self.fail(f"select of {e.true_value.dtype} and {e.false_value.dtype}", e)
        elif type(e) is BufferLoad:
            self._access(e.buffer, e.indices, e.predicate)
        elif type(e) is x.Call:
            self._call(e)
        elif isinstance(e, x.ProducerLoad | x.Reduce):
            self.fail("tensor expression in a loop program", e)

    def _call(self, e: x.Call) -> None:
        record = INTRINSICS.find(e.name)
        if record is None:
            self.fail(f"unknown intrinsic {e.name}", e)
        elif record.arity is not None and len(e.args) != record.arity:
            self.fail(f"{e.name} takes {record.arity} operands", e)


def _no_kind(*kinds: ForKind) -> _Check:
    def check(func: PrimFunc) -> str | None:
        for node in post_order_stmts(func.body):
            if isinstance(node, s.For) and node.kind in kinds:
                return f"{node.kind.value} loop after the pass that removes them"
        return None

    return check


def _locals_are_registers(func: PrimFunc) -> str | None:
    accesses = [*(n for n in post_order_stmts(func.body) if isinstance(n, s.BufferStore)),
                *(e for e in all_exprs(func.body) if type(e) is BufferLoad)]
    for access in accesses:
        if access.buffer.scope == "local" and not is_constant_access(access.indices):
            return f"index of local buffer {access.buffer.name} is not constant: {access.indices}"
    return None


def _no_transcendentals(func: PrimFunc) -> str | None:
    for e in all_exprs(func.body):
        if type(e) is x.Call and INTRINSICS.get(e.name).is_decomposed:
            return f"transcendental intrinsic after lower_intrinsics: {e.name}"
    return None


def _flat(func: PrimFunc) -> str | None:
    for node in post_order_stmts(func.body):
        if isinstance(node, s.BufferStore | s.Allocate) and node.buffer.ndim != 1:
            return f"buffer {node.buffer.name} of rank {node.buffer.ndim} after flatten_buffer"
    return None


FACTS: dict[str, _Check] = {
    "no_vectorized_loops": _no_kind(ForKind.VECTORIZED),
    "no_unrolled_loops": _no_kind(ForKind.UNROLLED, ForKind.VECTORIZED),
    "no_transcendentals": _no_transcendentals,
    "locals_are_registers": _locals_are_registers,
    "flat_buffers": _flat,
}
# The properties that hold after each pass.
PHASE_FACTS: dict[str, tuple[str, ...]] = {
    "vectorize_loop": ("no_vectorized_loops",),
    "unroll_loop": ("no_unrolled_loops",),
    "lower_intrinsics": ("no_transcendentals",),
    "check_local": ("locals_are_registers",),
    "flatten_buffer": ("flat_buffers",),
}


def verify_func(func: PrimFunc, facts: Sequence[str] = ()) -> None:
    """Raise ``WellFormedError`` if ``func`` is malformed or violates one of ``facts``."""
    _Verifier(func).stmt(func.body)
    for name in facts:
        problem = FACTS[name](func)
        if problem is not None:
            raise WellFormedError(f"{func.name}: {problem}", expected=name.replace("_", " "))
