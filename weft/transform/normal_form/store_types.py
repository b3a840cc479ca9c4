"""The store of ``store_passing``: a list of contents and its length for each type of contents."""

from __future__ import annotations

from collections.abc import Iterable

from weft import op
from weft.ir.expr import (
    Call,
    Clause,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Match,
    PatternConstructor,
    PatternVar,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
    const,
)
from weft.ir.module import IRModule
from weft.ir.types import GlobalTypeVar, TensorType, TupleType, Type, TypeCall
from weft.support.dataclass import dataclass

ADDRESS = TensorType.of((), "int32")


@dataclass(frozen=True, eq=False, slots=True)
class _List:
    """The contents of one type, newest first: ``Empty``, or ``Entry(contents, older)``."""

    position: int  # of the list in the tuple of all; its length follows
    contents: Type
    type: Type
    empty: Constructor
    entry: Constructor
    read: str
    write: str


class Stores:
    """A store is a tuple: the list and the length for the first type of contents, and so on."""

    def __init__(self, contents: Iterable[Type], mod: IRModule) -> None:
        self._taken = {*mod.functions, *mod.type_definitions,
                       *(c.name for d in mod.type_definitions.values() for c in d.constructors)}
        self.lists = {type_: self._list(i, type_) for i, type_ in enumerate(contents)}
        self.type = TupleType(tuple(t for kept in self.lists.values()
                                    for t in (kept.type, ADDRESS)))

    def _unused(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _list(self, index: int, contents: Type) -> _List:
        header = GlobalTypeVar(self._unused(f"Store{index}"))
        type_ = TypeCall(header, ())
        empty = Constructor(self._unused(f"Empty{index}"), (), header, 0)
        entry = Constructor(self._unused(f"Entry{index}"), (contents, type_), header, 1)
        return _List(2 * index, contents, type_, empty, entry,
                     self._unused(f"read_store{index}"), self._unused(f"write_store{index}"))

    def empty(self) -> Expr:
        """A store without references."""
        return Tuple(tuple(part for kept in self.lists.values()
                           for part in (Call(kept.empty, ()), const(0, "int32"))))

    def created(self, store: Expr, contents: Type, value: Expr) -> tuple[Expr, Expr]:
        """The address of a new reference to ``value``, and the store that holds it."""
        kept = self.lists[contents]
        address = TupleGetItem(store, kept.position + 1)
        longer = Call(kept.entry, (value, TupleGetItem(store, kept.position)))
        return address, self._with(store, kept, longer, op.add(address, const(1, "int32")))

    def read(self, store: Expr, contents: Type, address: Expr) -> Expr:
        """The contents of ``address``."""
        kept = self.lists[contents]
        return Call(GlobalVar(kept.read),
                    (TupleGetItem(store, kept.position), self._depth(store, kept, address)))

    def written(self, store: Expr, contents: Type, address: Expr, value: Expr) -> Expr:
        """The store with ``value`` at ``address``."""
        kept = self.lists[contents]
        after = Call(GlobalVar(kept.write), (TupleGetItem(store, kept.position),
                                             self._depth(store, kept, address), value))
        return self._with(store, kept, after, TupleGetItem(store, kept.position + 1))

    def _depth(self, store: Expr, kept: _List, address: Expr) -> Expr:
        """How many newer entries come before ``address``."""
        newest = op.subtract(TupleGetItem(store, kept.position + 1), const(1, "int32"))
        return op.subtract(newest, address)

    def _with(self, store: Expr, kept: _List, entries: Expr, length: Expr) -> Expr:
        fields: list[Expr] = [TupleGetItem(store, i) for i in range(2 * len(self.lists))]
        fields[kept.position : kept.position + 2] = [entries, length]
        return Tuple(tuple(fields))

    def definitions(self) -> dict[str, TypeData]:
        """The data types of the lists."""
        return {kept.empty.belongs_to.name: TypeData(kept.empty.belongs_to, (),
                                                     (kept.empty, kept.entry))
                for kept in self.lists.values()}

    def functions(self) -> dict[str, Function]:
        """The functions that read and write the lists."""
        made: dict[str, Function] = {}
        for kept in self.lists.values():
            made[kept.read] = _read(kept)
            made[kept.write] = _write(kept)
        return made


def _read(kept: _List) -> Function:
    entries, depth = Var("entries", kept.type), Var("depth", ADDRESS)
    value, older = Var("value", kept.contents), Var("older", kept.type)
    deeper = Call(GlobalVar(kept.read), (older, op.subtract(depth, const(1, "int32"))))
    found = If(op.less_equal(depth, const(0, "int32")), value, deeper)
    lhs = PatternConstructor(kept.entry, (PatternVar(value), PatternVar(older)))
    body = Match(entries, (Clause(lhs, found),), complete=False)
    return Function((entries, depth), body, kept.contents)


def _write(kept: _List) -> Function:
    entries, depth = Var("entries", kept.type), Var("depth", ADDRESS)
    new = Var("new", kept.contents)
    value, older = Var("value", kept.contents), Var("older", kept.type)
    deeper = Call(GlobalVar(kept.write), (older, op.subtract(depth, const(1, "int32")), new))
    found = If(op.less_equal(depth, const(0, "int32")), Call(kept.entry, (new, older)),
               Call(kept.entry, (value, deeper)))
    lhs = PatternConstructor(kept.entry, (PatternVar(value), PatternVar(older)))
    body = Match(entries, (Clause(lhs, found),), complete=False)
    return Function((entries, depth, new), body, kept.type)
