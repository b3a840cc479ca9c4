"""Variables of a graph as state of the module: their first and last values in a run.

A read gives the value after the assignments before it in the order of execution, which control
edges and the order of the graph determine. A variable is an input of the module. One that is
assigned has an output with its next value (``mod.attrs["state"]``); ``mod.attrs["read_only"]`` are
the ones with a first value that the graph only reads: ``weft.compile`` makes constants of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import op
from weft.compat.graphdef.definitions import NodeDef
from weft.frontend.common.typed import inferred
from weft.ir import Expr, Span, Var

VARIABLES = frozenset({"VariableV2", "Variable", "VarHandleOp"})
INITIAL_VALUE = "_initial_value"
_CHANGES: Mapping[str, Any] = {
    "Assign": None, "AssignVariableOp": None, "AssignAdd": op.add, "AssignAddVariableOp": op.add,
    "AssignSub": op.subtract, "AssignSubVariableOp": op.subtract,
}
ASSIGNMENTS = frozenset(_CHANGES)
STATE_OPS = VARIABLES | ASSIGNMENTS


class Variables:
    """The variables of a graph: ``first`` are their values at the start, by name."""

    def __init__(self) -> None:
        self.first: dict[str, Var] = {}
        self._current: dict[str, Expr] = {}
        self._fed: set[str] = set()

    def declare(self, node: NodeDef, var: Var) -> None:
        """Add a variable."""
        self.first[node.name] = var
        self._current[node.name] = var

    def value(self, name: str) -> Expr:
        """The value at this point of the execution."""
        return self._current[name]

    def feed(self, name: str, value: Expr) -> None:
        """Let reads and assignments see ``value``, which the caller gives: it is no state then."""
        self._current[name] = value
        self._fed.add(name)

    def assign(self, name: str, change: str, value: Expr, span: Span) -> Expr:
        """The value after an assignment (``AssignAdd``, ...) of ``value``."""
        operator = _CHANGES[change]
        if operator is not None:
            value = inferred(operator(self._current[name], value, span=span))
        self._current[name] = value
        return value

    def inputs(self) -> dict[str, Var]:
        """The variables that are parameters of the module."""
        return {name: value for name, value in self.first.items() if name not in self._fed}

    def updated(self) -> dict[str, Expr]:
        """The next values of the variables that were assigned."""
        return {name: value for name, value in self._current.items()
                if value is not self.first[name] and name not in self._fed}


def next_value_name(variable: str) -> str:
    """The name of the output with the next value of a variable."""
    return f"{variable}/next"


def target_of(node: NodeDef, nodes: Mapping[str, NodeDef]) -> str:
    """The variable that an assignment changes, through the references that assignments return."""
    name = node.data_inputs[0].split(":")[0]
    seen: set[str] = set()
    while name not in seen and name in nodes and nodes[name].op in ASSIGNMENTS:
        seen.add(name)
        name = nodes[name].data_inputs[0].split(":")[0]
    return name
