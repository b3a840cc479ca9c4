"""The store of ``store_passing``: a list of contents and its length for each type of contents."""

from __future__ import annotations

from collections.abc import Iterable

from weft import ir, op
from weft.support.dataclass import dataclass

ADDRESS = ir.TensorType.of((), "int32")


@dataclass(frozen=True, eq=False, slots=True)
class _List:
    """The contents of one type, newest first: ``Empty``, or ``Entry(contents, older)``."""

    position: int  # the position of the list in the tuple of all lists; its length follows
    contents: ir.Type
    type: ir.Type
    empty: ir.Constructor
    entry: ir.Constructor
    read: str
    write: str


class Stores:
    """A store is a tuple: the list and the length for the first type of contents, and so on."""

    def __init__(self, contents: Iterable[ir.Type], mod: ir.IRModule) -> None:
        self._taken = {*mod.functions, *mod.type_definitions,
                       *(c.name for d in mod.type_definitions.values() for c in d.constructors)}
        self.lists = {type_: self._list(i, type_) for i, type_ in enumerate(contents)}
        self.type = ir.TupleType(tuple(t for kept in self.lists.values()
                                       for t in (kept.type, ADDRESS)))

    def _unused(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def _list(self, index: int, contents: ir.Type) -> _List:
        header = ir.GlobalTypeVar(self._unused(f"Store{index}"))
        type_ = ir.TypeCall(header, ())
        empty = ir.Constructor(self._unused(f"Empty{index}"), (), header, 0)
        entry = ir.Constructor(self._unused(f"Entry{index}"), (contents, type_), header, 1)
        return _List(2 * index, contents, type_, empty, entry,
                     self._unused(f"read_store{index}"), self._unused(f"write_store{index}"))

    def empty(self) -> ir.Expr:
        """A store without references."""
        return ir.Tuple(tuple(part for kept in self.lists.values()
                              for part in (ir.Call(kept.empty, ()), ir.const(0, "int32"))))

    def created(self, store: ir.Expr, contents: ir.Type, value: ir.Expr) -> tuple[ir.Expr, ir.Expr]:
        """The address of a new reference to ``value``, and the store that holds it."""
        kept = self.lists[contents]
        address = ir.TupleGetItem(store, kept.position + 1)
        longer = ir.Call(kept.entry, (value, ir.TupleGetItem(store, kept.position)))
        return address, self._with(store, kept, longer, op.add(address, ir.const(1, "int32")))

    def read(self, store: ir.Expr, contents: ir.Type, address: ir.Expr) -> ir.Expr:
        """The contents of ``address``."""
        kept = self.lists[contents]
        return ir.Call(ir.GlobalVar(kept.read),
                       (ir.TupleGetItem(store, kept.position), self._depth(store, kept, address)))

    def written(self, store: ir.Expr, contents: ir.Type, address: ir.Expr,
                value: ir.Expr) -> ir.Expr:
        """The store with ``value`` at ``address``."""
        kept = self.lists[contents]
        after = ir.Call(ir.GlobalVar(kept.write), (ir.TupleGetItem(store, kept.position),
                                                   self._depth(store, kept, address), value))
        return self._with(store, kept, after, ir.TupleGetItem(store, kept.position + 1))

    def _depth(self, store: ir.Expr, kept: _List, address: ir.Expr) -> ir.Expr:
        """The number of entries that are newer than ``address``."""
        newest = op.subtract(ir.TupleGetItem(store, kept.position + 1), ir.const(1, "int32"))
        return op.subtract(newest, address)

    def _with(self, store: ir.Expr, kept: _List, entries: ir.Expr, length: ir.Expr) -> ir.Expr:
        fields: list[ir.Expr] = [ir.TupleGetItem(store, i) for i in range(2 * len(self.lists))]
        fields[kept.position : kept.position + 2] = [entries, length]
        return ir.Tuple(tuple(fields))

    def definitions(self) -> dict[str, ir.TypeData]:
        """The data types of the lists."""
        return {kept.empty.belongs_to.name: ir.TypeData(kept.empty.belongs_to, (),
                                                        (kept.empty, kept.entry))
                for kept in self.lists.values()}

    def functions(self) -> dict[str, ir.Function]:
        """The functions that read and write the lists."""
        made: dict[str, ir.Function] = {}
        for kept in self.lists.values():
            made[kept.read] = _read(kept)
            made[kept.write] = _write(kept)
        return made


def _read(kept: _List) -> ir.Function:
    entries, depth = ir.Var("entries", kept.type), ir.Var("depth", ADDRESS)
    value, older = ir.Var("value", kept.contents), ir.Var("older", kept.type)
    deeper = ir.Call(ir.GlobalVar(kept.read), (older, op.subtract(depth, ir.const(1, "int32"))))
    found = ir.If(op.less_equal(depth, ir.const(0, "int32")), value, deeper)
    lhs = ir.PatternConstructor(kept.entry, (ir.PatternVar(value), ir.PatternVar(older)))
    body = ir.Match(entries, (ir.Clause(lhs, found),), complete=False)
    return ir.Function((entries, depth), body, kept.contents)


def _write(kept: _List) -> ir.Function:
    entries, depth = ir.Var("entries", kept.type), ir.Var("depth", ADDRESS)
    new = ir.Var("new", kept.contents)
    value, older = ir.Var("value", kept.contents), ir.Var("older", kept.type)
    deeper = ir.Call(ir.GlobalVar(kept.write),
                     (older, op.subtract(depth, ir.const(1, "int32")), new))
    found = ir.If(op.less_equal(depth, ir.const(0, "int32")), ir.Call(kept.entry, (new, older)),
                  ir.Call(kept.entry, (value, deeper)))
    lhs = ir.PatternConstructor(kept.entry, (ir.PatternVar(value), ir.PatternVar(older)))
    body = ir.Match(entries, (ir.Clause(lhs, found),), complete=False)
    return ir.Function((entries, depth, new), body, kept.type)
