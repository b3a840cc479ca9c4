"""What a program holds, so that passes leave at once where there is nothing for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from weft.ir.dtype import DType
from weft.ir.expr import Call, Expr
from weft.ir.op import Op
from weft.ir.shape import ANY
from weft.ir.types import TensorType, Type, component_types
from weft.ir.visitor import post_order
from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.ir.passes import PassContext


_type_of = attrgetter("checked_type")


@dataclass(frozen=True, eq=False)
class Contents:
    """The kinds of nodes, the operators that are called, and the types of the typed nodes."""

    kinds: Collection[type[Expr]]
    operators: Collection[Op]
    types: Collection[Type]

    @staticmethod
    def of(roots: Iterable[Expr]) -> Contents:
        """The contents of expressions, the inside of all functions included."""
        kinds: set[type[Expr]] = set()
        callees: set[Expr] = set()
        types: dict[int, Type | None] = {}
        for root in roots:
            nodes = list(post_order(root))
            kinds.update(map(type, nodes))
            callees.update([node.op for node in nodes if type(node) is Call])
            found = list(map(_type_of, nodes))
            types.update(zip(map(id, found), found, strict=True))
        known = [type_ for type_ in types.values() if type_ is not None]
        operators = [callee for callee in callees if type(callee) is Op]
        return Contents(kinds, operators, known)

    @cached_property
    def dtypes(self) -> Collection[DType]:
        """The dtypes of all tensors."""
        return list({id(tensor.dtype): tensor.dtype for tensor in self._tensors}.values())

    @cached_property
    def has_unknown_sizes(self) -> bool:
        """Whether only run time determines a size of a tensor."""
        return any(ANY in tensor.shape for tensor in self._tensors)

    @cached_property
    def _tensors(self) -> list[TensorType]:
        found, seen = [], set[int]()
        pending = list(self.types)
        while pending:
            current = pending.pop()
            if isinstance(current, TensorType):
                found.append(current)
            elif id(current) not in seen:
                seen.add(id(current))
                pending.extend(component_types(current))
        return found


@dataclass(frozen=True, slots=True)
class Seeks:
    """What a pass looks for: it changes only programs that hold one of these.

    ``kinds`` are kinds of nodes, ``operators`` names, ``hooks`` names of hooks that an operator
    may have, and ``table`` the name of a table in the context's ``config``, keyed by operator.
    ``operator`` and ``dtype`` accept operators and the dtypes of tensors; ``unknown_sizes`` stands
    for sizes that only run time determines.
    """

    kinds: tuple[type[Expr], ...] = ()
    operators: Collection[str] = ()
    hooks: tuple[str, ...] = ()
    table: str = ""
    operator: Callable[[Op], bool] | None = None
    dtype: Callable[[DType], bool] | None = None
    unknown_sizes: bool = False

    def may_be_in(self, contents: Contents, ctx: PassContext) -> bool:
        """Whether a program with these contents holds what the pass looks for."""
        if any(kind in contents.kinds for kind in self.kinds):
            return True
        if self.unknown_sizes and contents.has_unknown_sizes:
            return True
        if self.dtype is not None and any(map(self.dtype, contents.dtypes)):
            return True
        table: Any = ctx.config.get(self.table, ()) if self.table else ()
        return any(self._accepts(operator, table) for operator in contents.operators)

    def _accepts(self, operator: Op, table: Collection[str]) -> bool:
        return (operator.name in self.operators or operator.name in table
                or (self.operator is not None and self.operator(operator))
                or any(operator.hooks.get(name) is not None for name in self.hooks))
