"""Program-wide tables of constants, kernels and functions."""

from __future__ import annotations

from collections import deque

import numpy as np

from weft.compiler.build.kernel_set import KernelSet
from weft.compiler.program.constants import constant_key
from weft.compiler.vm.bounded_loop import BoundedLoop, bounded_loop
from weft.ir import IRModule, binders, children, post_order
from weft.ir.expr import Constructor, Expr, Function, GlobalVar, Let, Var
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import is_primitive


class Captures:
    """The captured variables of every local function in ``body``, in order of first use.

    ``own_name`` maps a function to the variable of its let, which is not captured.
    """

    def __init__(self, body: Expr) -> None:
        self.variables: dict[Function, tuple[Var, ...]] = {}
        self.own_name: dict[Function, Var] = {}
        order = list(post_order(body, enter=lambda e: not is_primitive(e)))
        for node in order:
            if isinstance(node, Let) and isinstance(node.value, Function):
                self.own_name[node.value] = node.var
        for node in order:  # nested functions come first
            if isinstance(node, Function):
                self.variables[node] = self._free(node)

    def _free(self, function: Function) -> tuple[Var, ...]:
        if is_primitive(function):
            return ()
        bound = {*function.params, self.own_name.get(function)}
        used: dict[Var, None] = {}
        for node in post_order(function.body, enter=lambda e: not isinstance(e, Function)):
            bound.update(binders(node) if not isinstance(node, Function) else ())
            if isinstance(node, Function):
                used.update(dict.fromkeys(self.variables[node]))
            else:
                used.update(dict.fromkeys(c for c in children(node) if isinstance(c, Var)))
        if isinstance(function.body, Var):
            used[function.body] = None
        return tuple(v for v in used if v not in bound)


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A function, or a constructor used as one, that is yet to be lowered."""

    name: str
    source: Function | Constructor
    captured: tuple[Var, ...] = ()
    own_name: Var | None = None
    captures: Captures | None = None


class Tables:
    """Assigns numbers to constants, kernels and functions; queues functions on first use."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.kernels = KernelSet()
        self.arrays: list[np.ndarray] = []
        self.pending: deque[tuple[int, Pending]] = deque()
        self.count = 0
        self._constants: dict[tuple[object, ...], int] = {}
        self._functions: dict[Expr | str, int] = {}
        self._loops: dict[str, BoundedLoop | None] = {}

    def constant(self, data: np.ndarray) -> int:
        """The number of a constant; equal arrays share one."""
        key = (*constant_key(data), data.dtype, data.shape)
        if key not in self._constants:
            self._constants[key] = len(self.arrays)
            self.arrays.append(data)
        return self._constants[key]

    def global_function(self, var: GlobalVar) -> int:
        return self._number(var.name, Pending(var.name, self.mod[var]))

    def constructor(self, constructor: Constructor) -> int:
        return self._number(f"constructor {constructor.name}",
                            Pending(constructor.name, constructor))

    def local_function(self, function: Function, captures: Captures | None, name: str) -> int:
        """The number of a function nested in the function ``name``."""
        captured = captures.variables[function] if captures else ()
        own = captures.own_name.get(function) if captures else None
        label = f"{name}.{own.name if own else 'fn'}"
        return self._number(function, Pending(label, function, captured, own, captures))

    def loop(self, var: GlobalVar) -> BoundedLoop | None:
        """The loop that a global function is, if it becomes a kernel."""
        if var.name not in self._loops:
            self._loops[var.name] = bounded_loop(self.mod, var.name)
        return self._loops[var.name]

    def reserve(self) -> int:
        """A new function number; the caller supplies the function."""
        self.count += 1
        return self.count - 1

    def _number(self, key: Expr | str, pending: Pending) -> int:
        if key not in self._functions:
            self._functions[key] = self.reserve()
            self.pending.append((self._functions[key], pending))
        return self._functions[key]
