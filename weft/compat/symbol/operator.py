"""The operators of symbols: those of weft's catalogue by name, and those of NNVM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import weft.op  # noqa: F401 - fills the catalogue
from weft.ir import OPS, Attrs, Call, Expr, Op, Tuple, Type
from weft.support.dataclass import dataclass
from weft.support.errors import RegistryError
from weft.support.registry import Registry
from weft.support.suggestion import did_you_mean

# (attributes, inputs) -> the expression that the node computes.
Lower: TypeAlias = "Callable[[Any, Sequence[Expr]], Expr]"
InputNames: TypeAlias = "Callable[[Any], tuple[str, ...]]"


@dataclass(frozen=True, eq=False)
class SymbolOp:
    """The operator of nodes: names of inputs, attributes, number of results, and its program.

    ``inputs`` are the names of the inputs for given attributes; one name with a leading ``*`` is
    any number of inputs. ``op`` is the operator of weft that a node calls, if it calls exactly one.
    ``outputs`` gives the number of results from the attributes and the number of inputs; ``None``
    stands for one result. ``types`` gives the type of the results from those of typed inputs
    where it is known without the program.
    """

    name: str
    attrs_type: type[Attrs]
    inputs: InputNames
    lower: Lower
    op: Op | None = None
    outputs: Callable[[Any, int], int] | None = None
    types: Callable[[Any, Sequence[Expr]], Type] | None = None

    def __repr__(self) -> str:
        return f"<SymbolOp {self.name}>"


# NNVM's operators by their NNVM names, which take precedence over equal names of weft.
NNVM_OPS: Registry[SymbolOp] = Registry("NNVM operator")
_WRAPPED: dict[str, SymbolOp] = {}
# Operators that are made from the rest of a name, by its prefix.
FAMILIES: dict[str, Callable[[str], SymbolOp]] = {}

OWN = "weft."
BARRIER = "annotation.barrier"


def operator(name: str) -> SymbolOp:
    """The operator of a name: NNVM's, else weft's; ``weft.reshape`` is always weft's.

    Raises ``RegistryError`` for an unknown name.
    """
    if name in NNVM_OPS:
        return NNVM_OPS.get(name)
    for prefix, make in FAMILIES.items():
        if name.startswith(prefix):
            return make(name.removeprefix(prefix))
    own = name.removeprefix(OWN)
    if own not in OPS:
        raise RegistryError(f"unknown operator {name!r}",
                            help=did_you_mean(name, [*NNVM_OPS, *OPS]))
    return operator_of(OPS.get(own))


def operator_of(op: Op) -> SymbolOp:
    """The operator of symbols that calls ``op``."""
    known = _WRAPPED.get(op.name)
    if known is None or known.op is not op:  # a user may register an operator again
        known = _WRAPPED[op.name] = _wrapped(op)
    return known


def _wrapped(op: Op) -> SymbolOp:
    def lower(attrs: Attrs, inputs: Sequence[Expr]) -> Expr:
        args = (Tuple(tuple(inputs)),) if op.inputs[:1] and op.inputs[0].startswith("*") else inputs
        return Call(op, tuple(args), attrs)

    names = op.inputs
    if op.name == BARRIER:  # its edges are the control dependencies of the node
        names, lower = ("x",), lambda _attrs, inputs: op(inputs[0], Tuple(()))
    name = f"{OWN}{op.name}" if op.name in NNVM_OPS else op.name
    return SymbolOp(name, op.attrs_type, lambda _attrs: names, lower, op,
                    None if op.results == 1 else op.num_results)
