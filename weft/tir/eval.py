"""The reference evaluator of loop programs over NumPy arrays: slow, with checks.

It translates a function to Python source, one line per operation, on NumPy scalars; vectors are
arrays of their lanes. Accesses are checked against the shapes of buffers. Fresh memory is filled
with NaN (a bit pattern for integers), to expose reads of uninitialised elements. Iterations of
parallel loops run in reverse order, to expose dependences between them. It accepts programs before
and after any pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from weft.support.errors import InvalidInputError, LoweringError, WellFormedError
from weft.support.interpreter import deep_recursion
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.eval_threads import (
    SharedMemory,
    Threads,
    has_barrier,
    is_thread_loop,
    thread_nest,
)
from weft.tir.eval_values import HELPERS
from weft.tir.expr import PrimExpr, Var
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import INTRINSICS
from weft.tir.python_function import PythonFunction, functions_of
from weft.tir.visitor import post_order_stmts

_POISON_BYTE = 0xA5
# CPython allows 20 nested blocks per function; deeper nests continue in an inner function.
_LOOPS_PER_FUNCTION = 15

# Literals below this are Python integers: their other operand is index arithmetic.
_SMALL_LITERAL = 1 << 16

_INFIX: dict[type, str] = {
    x.Add: "+", x.Sub: "-", x.EQ: "==", x.NE: "!=", x.LT: "<", x.LE: "<=",
    x.GT: ">", x.GE: ">=", x.And: "&", x.Or: "|",
}  # fmt: skip


def _alloc(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Fresh memory, filled with NaN or a bit pattern."""
    if "float" in dtype.name:
        return np.full(shape, np.nan).astype(dtype)
    if dtype.kind == "b":
        return np.ones(shape, dtype)
    count = int(np.prod(shape)) * dtype.itemsize
    return np.full(count, _POISON_BYTE, np.uint8).view(dtype).reshape(shape)


def _out_of_bounds(name: str, shape: tuple[int, ...], indices: tuple[Any, ...]) -> None:
    raise WellFormedError(f"out-of-bounds access of buffer {name}",
                          expected=f"indices within {tuple(map(int, shape))}",
                          got=str(tuple(np.asarray(i).tolist() for i in indices)))


def _lanes(
    memory: np.ndarray, name: str, indices: tuple[Any, ...], mask: Any
) -> tuple[Any, np.ndarray]:
    """Indices broadcast to all lanes, 0 for masked-off lanes, and the mask."""
    rows = np.broadcast_arrays(*(np.asarray(i) for i in indices))
    keep = np.broadcast_to(True if mask is None else np.asarray(mask), rows[0].shape)
    for row, size in zip(rows, memory.shape, strict=True):
        if np.any(keep & ((row < 0) | (row >= size))):
            _out_of_bounds(name, memory.shape, tuple(rows))
    return tuple(np.where(keep, row, 0) for row in rows), keep


def _load(memory: np.ndarray, name: str, indices: tuple[Any, ...], mask: Any) -> Any:
    where, keep = _lanes(memory, name, indices, mask)
    if not keep.any():
        return np.zeros(keep.shape, memory.dtype)[()]
    return np.where(keep, memory[where], np.zeros((), memory.dtype))[()]


def _store(memory: np.ndarray, name: str, indices: tuple[Any, ...], mask: Any, value: Any) -> None:
    where, keep = _lanes(memory, name, indices, mask)
    lanes = np.broadcast_to(value, keep.shape)
    memory[tuple(w[keep] for w in where)] = lanes[keep]


class _Source:
    """Writes the Python source of a function body."""

    def __init__(self, functions: Mapping[str, PythonFunction] | None = None) -> None:
        self.functions = functions or {}
        self.lines: list[str] = []
        self.depth = 1
        self.loops = 0
        self.constants: dict[str, Any] = {}
        self._names: dict[object, str] = {}
        self._known: list[dict[PrimExpr, str]] = [{}]  # one dictionary per enclosing branch
        self._count = 0
        self._in_threads = False

    def emit(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def fresh(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def name(self, thing: Var | Buffer) -> str:
        if thing not in self._names:
            self._names[thing] = f"{'b' if isinstance(thing, Buffer) else 'v'}{len(self._names)}"
        return self._names[thing]

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    # expressions

    def value(self, e: PrimExpr) -> str:
        """The variable or literal with the value of ``e``; computed once per branch."""
        if type(e) is Var:
            return self.name(e)
        if type(e) is x.IntImm and e.dtype.is_bool:
            return repr(bool(e.value))
        if _is_small_literal(e):
            return f"({x.int_value(e)})"
        for known in self._known:
            if e in known:
                return known[e]
        code = self._code(e)
        name = self._known[-1][e] = self.fresh()
        self.emit(f"{name} = {code}")
        return name

    def values(self, items: tuple[PrimExpr, ...]) -> str:
        return "(" + "".join(f"{self.value(i)}, " for i in items) + ")"

    def _code(self, e: PrimExpr) -> str:
        infix = _INFIX.get(type(e))
        if infix is not None:
            return f"{self.value(e.a)} {infix} {self.value(e.b)}"  # type: ignore[attr-defined]
        rule = self._RULES.get(type(e))
        if rule is None:
            raise LoweringError(f"cannot evaluate {type(e).__name__}", got=e)
        return rule(self, e)

    def _immediate(self, e: x.IntImm | x.FloatImm) -> str:
        return self.constant(np.asarray(e.value).astype(e.dtype.numpy)[()])

    def _product(self, e: x.Mul) -> str:
        code = f"{self.value(e.a)} * {self.value(e.b)}"
        is_safe = e.dtype is not x.int64 or _is_small_literal(e.a) or _is_small_literal(e.b)
        return code if is_safe else f"wrapped({code})"

    def _floor(self, e: x.Binary) -> str:
        a, b = self.value(e.a), self.value(e.b)
        if (_is_small_literal(e.b) and x.int_value(e.b)) or e.dtype.is_float:
            return f"{a} {'//' if type(e) is x.FloorDiv else '%'} {b}"
        return f"{'floordiv' if type(e) is x.FloorDiv else 'floormod'}({a}, {b})"

    def _div(self, e: x.Binary) -> str:
        a, b = self.value(e.a), self.value(e.b)
        return f"{a} / {b}" if e.dtype.is_float else f"truncated({a}, {b})"

    def _extremum(self, e: x.Binary) -> str:
        name = "minimum" if type(e) is x.Min else "maximum"
        return f"np.{name}({self.value(e.a)}, {self.value(e.b)})"

    def _not(self, e: x.Not) -> str:
        return f"{'not' if e.dtype.lanes == 1 else '~'} {self.value(e.a)}"

    def _select(self, e: x.Select) -> str:
        c, t, f = (self.value(v) for v in (e.condition, e.true_value, e.false_value))
        if e.condition.dtype.lanes > 1:
            return f"np.where({c}, {t}, {f})"
        return f"{t} if {c} else {f}"

    def _cast(self, e: x.Cast) -> str:
        return f"converted({self.value(e.value)}, {self.constant(e.dtype.element.numpy)})"

    def _ramp(self, e: x.Ramp) -> str:
        dtype = self.constant(e.dtype.element.numpy)
        return f"ramp({self.value(e.base)}, {self.value(e.stride)}, {e.lanes}, {dtype})"

    def _broadcast(self, e: x.Broadcast) -> str:
        dtype = self.constant(e.dtype.element.numpy)
        return f"np.full({e.lanes}, {self.value(e.value)}, {dtype})"

    def _shuffle(self, e: x.Shuffle) -> str:
        return f"shuffled({self.values(e.vectors)}, {list(e.indices)})"

    def _let(self, e: x.Let) -> str:
        self.emit(f"{self.name(e.var)} = {self.value(e.value)}")
        return self.value(e.body)

    def _load(self, e: x.BufferLoad) -> str:
        buffer = self.name(e.buffer)
        if e.predicate is None and e.dtype.lanes == 1:
            return f"{buffer}[{self.checked(e.buffer, e.indices)}]"
        mask = "None" if e.predicate is None else self.value(e.predicate)
        return f"_load({buffer}, {e.buffer.name!r}, {self.values(e.indices)}, {mask})"

    def checked(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> str:
        """The scalar indices; emits a bounds check."""
        name, where = self.name(buffer), self.values(indices)
        tests = [f"0 <= {self.value(i)} < {name}.shape[{d}]" for d, i in enumerate(indices)]
        if tests:
            self.emit(f"if not ({' and '.join(tests)}):")
            self.emit(f"  _out_of_bounds({buffer.name!r}, {name}.shape, {where})")
        return where

    def _call(self, e: x.Call) -> str:
        if e.name == "if_then_else":
            return self._lazy(e)
        if e.name == "reinterpret":
            return f"reinterpreted({self.value(e.args[0])}, {self.constant(e.dtype.element.numpy)})"
        if e.name in ("prefetch", "prefetch_l2"):
            return "None"
        if e.name == "barrier":
            return self._barrier(e)
        if e.name == "call_extern":
            return self._call_extern(e)
        meaning = INTRINSICS.get(e.name).evaluate
        if meaning is None:
            raise LoweringError(f"cannot evaluate the intrinsic {e.name}", got=e)
        return f"{self.constant(meaning)}({', '.join(self.value(a) for a in e.args)})"

    def _barrier(self, e: x.Call) -> str:
        if not self._in_threads:
            raise LoweringError("barrier outside of the threads of a block", got=e)
        return f"yield {len(self.lines)}"

    def _call_extern(self, e: x.Call) -> str:
        """A call of a Python function with the buffers whose addresses are operands."""
        symbol, *operands = e.args
        found = self.functions.get(symbol.value) if isinstance(symbol, x.StringImm) else None
        if found is None:
            raise LoweringError("cannot evaluate a call of an external function", got=e)
        count = len(found.arrays)
        memory = [a.args[0].buffer for a in operands[:count]]  # type: ignore[attr-defined]
        arrays = "".join(f"{self.name(b)}, " for b in memory)
        return f"{self.constant(found.run)}(({arrays}), {self.values(tuple(operands[count:]))})"

    def _lazy(self, e: x.Call) -> str:
        condition, *sides = e.args
        if condition.dtype.lanes > 1:
            raise LoweringError(
                "if_then_else with a vector condition", got=e, help="use a select and masked loads"
            )
        result = self.fresh()
        for head, side in zip((f"if {self.value(condition)}:", "else:"), sides, strict=True):
            self.emit(head)
            self.block(lambda side=side: self.emit(f"{result} = {self.value(side)}"))
        return result

    def block(self, write: Callable[[], None]) -> None:
        self.depth += 1
        self._known.append({})
        write()
        self._known.pop()
        self.depth -= 1

    # statements

    def stmt(self, node: s.Stmt) -> None:
        # Do not reuse loads of earlier statements: memory may have changed.
        outer, self._known = self._known, [{}]
        self._STATEMENTS[type(node)](self, node)
        self._known = outer

    def _store_stmt(self, node: s.BufferStore) -> None:
        buffer, value = self.name(node.buffer), self.value(node.value)
        lanes = x.access_lanes(node.indices)
        if node.predicate is None and lanes == 1:
            self.emit(f"{buffer}[{self.checked(node.buffer, node.indices)}] = {value}")
            return
        mask = "None" if node.predicate is None else self.value(node.predicate)
        where = self.values(node.indices)
        self.emit(f"_store({buffer}, {node.buffer.name!r}, {where}, {mask}, {value})")

    def _for(self, node: s.For) -> None:
        if is_thread_loop(node):
            self._thread_block(node)
            return
        span = self._span(node)
        if node.kind in (s.ForKind.PARALLEL, s.ForKind.THREAD_BINDING):
            span = f"reversed({span})"
        self.emit(f"for {self.name(node.loop_var)} in {span}:")
        self.loops += 1
        if self.loops % _LOOPS_PER_FUNCTION:
            self.block(lambda: self.stmt(node.body))
        else:
            self.block(lambda: self._inner_function(node.body))
        self.loops -= 1

    def _span(self, loop: s.For) -> str:
        start = self.value(loop.min)
        return f"range({start}, {start} + {self.value(loop.extent)})"

    def _thread_block(self, outermost: s.For) -> None:
        """A function of one thread, and a call that runs it for all; see ``eval_threads``."""
        if self._in_threads:
            raise LoweringError("thread loop inside of a thread", got=outermost.thread_tag)
        loops, body = thread_nest(outermost)
        spans = "".join(f"{self._span(loop)}, " for loop in loops)
        name = self.fresh()
        for node in post_order_stmts(body):
            if isinstance(node, s.Allocate) and node.buffer.scope == "shared":
                self._allocate_memory(node.buffer)
        self.emit(f"def {name}({', '.join(self.name(loop.loop_var) for loop in loops)}):")
        self._in_threads = True
        self.block(lambda: self.stmt(body))
        self._in_threads = False
        self.emit(f"threads.run({name}, ({spans}))")

    def _inner_function(self, body: s.Stmt) -> None:
        name = self.fresh()
        self.emit(f"def {name}():")
        self.block(lambda: self.stmt(body))
        self.emit(f"yield from {name}()" if has_barrier(body) else f"{name}()")

    def _if(self, node: s.IfThenElse) -> None:
        self.emit(f"if {self.value(node.condition)}:")
        self.block(lambda: self.stmt(node.then_case))
        if node.else_case is not None:
            other = node.else_case
            self.emit("else:")
            self.block(lambda: self.stmt(other))

    def _sequence(self, node: s.SeqStmt) -> None:
        self.emit("pass")
        for inner in node.stmts:
            self.stmt(inner)

    def _allocate(self, node: s.Allocate) -> None:
        # The threads of a block have one shared buffer, which exists before they start.
        if not (self._in_threads and node.buffer.scope == "shared"):
            self._allocate_memory(node.buffer)
        self.stmt(node.body)

    def _allocate_memory(self, buffer: Buffer) -> None:
        shape, dtype = self.values(buffer.shape), self.constant(buffer.dtype.numpy)
        _refuse_strides(buffer)
        fresh = f"_alloc({shape}, {dtype})"
        if buffer.scope == "shared":
            fresh = f"SharedMemory({buffer.name!r}, {fresh}, threads)"
        self.emit(f"{self.name(buffer)} = {fresh}")

    def _let_stmt(self, node: s.LetStmt) -> None:
        self.emit(f"{self.name(node.var)} = {self.value(node.value)}")
        self.stmt(node.body)

    _RULES: ClassVar[dict[type, Callable[..., str]]] = {
        x.IntImm: _immediate, x.FloatImm: _immediate,
        x.Mul: _product, x.FloorDiv: _floor, x.FloorMod: _floor, x.Div: _div,
        x.Min: _extremum, x.Max: _extremum, x.Not: _not,
        x.Select: _select, x.Cast: _cast, x.Ramp: _ramp,
        x.Broadcast: _broadcast, x.Shuffle: _shuffle, x.Let: _let,
        x.BufferLoad: _load, x.Call: _call,
    }  # fmt: skip
    _STATEMENTS: ClassVar[dict[type, Callable[..., None]]] = {
        s.BufferStore: _store_stmt, s.For: _for, s.IfThenElse: _if,
        s.SeqStmt: _sequence, s.Allocate: _allocate, s.LetStmt: _let_stmt,
        s.AttrStmt: lambda source, node: source.stmt(node.body),
        s.Evaluate: lambda source, node: source.emit(source.value(node.value)),
    }  # fmt: skip


def _is_small_literal(e: PrimExpr) -> bool:
    """Whether ``e`` is an int64 immediate of few digits."""
    value = x.int_value(e)
    return value is not None and e.dtype is x.int64 and abs(value) < _SMALL_LITERAL


def _refuse_strides(buffer: Buffer) -> None:
    if buffer.strides is not None:
        raise LoweringError(f"unsupported strided buffer: {buffer.name}",
                            help="copy it into a compact buffer")


def to_python(func: PrimFunc) -> tuple[str, dict[str, Any]]:
    """Python source of ``run(...)`` for ``func``, and the globals that it needs."""
    source = _Source(functions_of(func))
    params = ", ".join(source.name(p) for p in func.params)
    with deep_recursion():
        source.stmt(func.body)
    helpers = (_alloc, _out_of_bounds, _load, _store, SharedMemory, Threads, *HELPERS)
    names = {"np": np, **{h.__name__: h for h in helpers}, **source.constants}
    return f"def run({params}):\n  threads = Threads()\n" + "\n".join(source.lines), names


def evaluate(func: PrimFunc, *arguments: Any) -> None:
    """Run ``func`` on ``arguments``; results are written into the output arrays.

    Arguments correspond to ``func.params``: contiguous arrays with the dtype and number of elements
    of the buffer, integers for symbolic sizes. Raises ``InvalidInputError`` for other arguments,
    ``WellFormedError`` for out-of-bounds accesses, and ``LoweringError`` for operations that cannot
    be evaluated (external functions other than Python functions).
    """
    if len(arguments) != len(func.params):
        raise InvalidInputError(
            f"{func.name} takes {len(func.params)} arguments", got=len(arguments)
        )
    sizes = {p: int(a) for p, a in zip(func.params, arguments, strict=True) if isinstance(p, Var)}
    bound = [
        sizes[p] if isinstance(p, Var) else _bind(p, a, sizes)
        for p, a in zip(func.params, arguments, strict=True)
    ]
    evaluator_of(func)(*bound)


def evaluator_of(func: PrimFunc) -> Callable[..., None]:
    """``func`` as a Python function of arrays in the shapes of its buffers, and of sizes."""
    code, names = to_python(func)
    exec(compile(code, f"<{func.name}>", "exec"), names)  # noqa: S102 - our own source
    run = names["run"]

    def quiet(*arguments: Any) -> None:
        with np.errstate(all="ignore"):
            run(*arguments)

    return quiet


def _bind(buffer: Buffer, array: Any, sizes: dict[Any, int]) -> np.ndarray:
    """``array``, reshaped to the shape of ``buffer``."""
    _refuse_strides(buffer)
    shape = tuple(_size(e, sizes) for e in buffer.shape)
    if not isinstance(array, np.ndarray) or array.dtype != buffer.dtype.numpy:
        raise InvalidInputError(f"wrong dtype of argument {buffer.name}",
                                expected=f"array of {buffer.dtype}",
                                got=getattr(array, "dtype", type(array).__name__))
    if not array.flags.c_contiguous or array.size != int(np.prod(shape)):
        raise InvalidInputError(f"wrong shape of argument {buffer.name}",
                                expected=f"a contiguous array of shape {shape}", got=array.shape)
    return array.reshape(shape)


def evaluate_expr(e: PrimExpr, values: dict[Var, Any] | None = None) -> Any:
    """The value of an expression without loads; ``values`` maps its variables to values."""
    source = _Source()
    values = values or {}
    params = ", ".join(source.name(v) for v in values)
    result = source.value(e)
    source.emit(f"return {result}")
    names: dict[str, Any] = {h.__name__: h for h in HELPERS}
    names.update(np=np, **source.constants)
    exec("\n".join([f"def run({params}):", *source.lines]), names)  # noqa: S102 - our own source
    with np.errstate(all="ignore"):
        return names["run"](*values.values())


def _size(e: PrimExpr, sizes: dict[Any, int]) -> int:
    value = x.int_value(e)
    return value if value is not None else int(evaluate_expr(e, sizes))
