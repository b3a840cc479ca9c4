"""``Symbol``: the results of a graph under composition (NNVM's ``nnvm.symbol``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, TypeAlias

from weft.compat.symbol import compose, describe
from weft.compat.symbol.attribute_text import parsed_attrs, text_of
from weft.compat.symbol.lowering import to_module
from weft.compat.symbol.node import Node, NodeEntry, copied, walk
from weft.compat.symbol.operator import SymbolOp, operator
from weft.compat.symbol.scope import AttrScope, free_name
from weft.compat.symbol.slots import get_attr
from weft.ir import IRModule, Span
from weft.support.errors import InvalidModelError, OptionError

KINDS = ("all", "read_only", "aux_state")
COUNT = "num_args"

# What NNVM accepts where it takes results of a graph.
Entries: TypeAlias = "Symbol | NodeEntry | Sequence[Entries]"


class Symbol:
    """Entries of a graph. Operators build new ones; ``compose`` and ``set_attr`` change nodes.

    A symbol with several entries is a group. ``weft.compile`` takes a symbol.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: Sequence[NodeEntry]) -> None:
        self.entries = tuple(entries)

    # Entries.

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Symbol]:
        return (Symbol((entry,)) for entry in self.entries)

    def __getitem__(self, index: int | str) -> Symbol:
        """Result ``index``, or the one of that name. Raises ``OptionError`` for none or several."""
        names = self.list_output_names()
        if isinstance(index, str):
            found = [i for i, name in enumerate(names) if name == index]
            if len(found) != 1:
                raise OptionError(f"{'several results' if found else 'no result'} named {index!r}",
                                  expected=", ".join(names))
            index = found[0]
        if not 0 <= index < len(self.entries):
            raise IndexError(f"result {index} of {len(self.entries)}")  # ends loops over indices
        return Symbol((self.entries[index],))

    @property
    def node(self) -> Node:
        """The node of all entries; ``OptionError`` for a group."""
        nodes = {entry.node for entry in self.entries}
        if len(nodes) != 1:
            raise OptionError("a group of symbols is not one node", got=f"{len(nodes)} nodes",
                              help="take one result: symbol[0]")
        return self.entries[0].node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def control_deps(self) -> tuple[Symbol, ...]:
        """The nodes that run before this one, besides its inputs."""
        return tuple(Symbol(_all_of(n)) for n in self.node.control_deps)

    def add_control_deps(self, deps: Entries) -> None:
        """Let the node run after the nodes of ``deps``; changes the node."""
        for entry in entries_of(deps):
            if self.node in walk((entry,)):
                raise InvalidModelError("the control dependency makes a cycle",
                                        where=self.node.span,
                                        got=f"{entry.node.name!r} depends on {self.node.name!r}")
            self.node.control_deps.append(entry.node)

    # Attributes of nodes.

    def attr(self, key: str) -> str | None:
        """An attribute of the node as text, or ``None``; ``"name"`` is its name."""
        if len({e.node for e in self.entries}) != 1:
            return None
        return self.node.name if key == "name" else self.node.attrs.get(key)

    def set_attr(self, **attrs: Any) -> None:
        """Set attributes of the node; ``name`` renames it. Raises ``AttrsError`` for wrong ones."""
        node = self.node
        changed = {key: text_of(value) for key, value in attrs.items()}
        name = changed.pop("name", node.name)
        if node.op is not None:
            parsed_attrs(node.op.attrs_type, {**node.attrs, **changed})
        node.attrs.update(changed)
        node.name = name

    def list_attr(self, *, recursive: bool = False) -> dict[str, str]:
        """The attributes of the node; ``recursive``: of all nodes, as ``node_name$key``."""
        if not recursive:
            return dict(self.node.attrs)
        return {f"{node.name}${key}": value for node in walk(self.entries)
                for key, value in sorted(node.attrs.items())}

    # Structure.

    def get_internals(self) -> Symbol:
        """All visible results of all nodes, operands first."""
        found: list[NodeEntry] = []
        for node in walk(self.entries):
            if node.op is None:
                found.append(NodeEntry(node, 0, node.version))
                continue
            visible = get_attr(node.op, "FNumVisibleOutputs")
            count = node.num_outputs if visible is None else visible(node.params)
            found.extend(NodeEntry(node, index) for index in range(count))
        return Symbol(found)

    def get_children(self) -> Symbol | None:
        """The inputs of the nodes of the entries; ``None`` if there are none."""
        nodes = dict.fromkeys(entry.node for entry in self.entries)
        found = [entry for node in nodes for entry in node.inputs]
        return Symbol(found) if found else None

    def list_input_variables(self, option: str = "all") -> list[Symbol]:
        """The variables: ``all``, those that are only read, or those that are mutated."""
        if option not in KINDS:
            raise OptionError("unknown kind of input variables", got=repr(option),
                              expected=", ".join(KINDS))
        nodes = list(walk(self.entries))
        mutated = {node.inputs[i].node for node in nodes for i in compose.mutated_inputs(node)}
        return [Symbol((NodeEntry(n, 0, n.version),)) for n in nodes if n.is_variable
                and (option == "all" or (option == "aux_state") == (n in mutated))]

    def list_input_names(self, option: str = "all") -> list[str]:
        """The names of ``list_input_variables``."""
        return [symbol.name for symbol in self.list_input_variables(option)]

    def list_output_names(self) -> list[str]:
        """The names of the entries: ``fc1_output``, with several results ``bn_output0``."""
        return [describe.output_name(entry) for entry in self.entries]

    def debug_str(self) -> str:
        """The nodes with their inputs, attributes and control dependencies, as NNVM prints them."""
        return describe.debug_text(self.entries)

    # Composition.

    def copy(self) -> Symbol:
        """The same graph in new nodes."""
        return Symbol(copied(self.entries))

    def compose(self, *args: Symbol, name: str = "", **kwargs: Symbol) -> None:
        """Replace variables by symbols; changes the nodes.

        An operator without inputs takes them by position or name, and makes variables for the
        others; a graph takes them by the names of its variables. Raises ``OptionError`` for groups
        and unknown names.
        """
        compose.compose(self.entries, [_single(a) for a in args],
                        {key: _single(value) for key, value in kwargs.items()}, name)

    def __call__(self, *args: Symbol, name: str = "", **kwargs: Symbol) -> Symbol:
        """``compose`` of a copy."""
        made = self.copy()
        made.compose(*args, name=name, **kwargs)
        return made

    def to_module(self, outputs: Sequence[str] | None = None,
                  inputs: Mapping[str, Sequence[object] | None] | None = None) -> IRModule:
        """The program of the results ``outputs``, with ``inputs`` as shapes of variables.

        ``lowering.to_module`` also takes dtypes and parameters, and lists the errors.
        """
        heads = self.entries if outputs is None else [self[n].entries[0] for n in outputs]
        return to_module(heads, shapes=inputs)

    def states(self) -> dict[str, str]:
        """The option ``state`` of ``weft.compile``: the next value of each mutated variable."""
        changed = {node.inputs[i].node.name: None for node in walk(self.entries)
                   for i in compose.mutated_inputs(node)
                   if node.op is not None and not get_attr(node.op, "TKeepsMutatedInputs")}
        return {compose.next_name(name): name for name in changed}

    def __repr__(self) -> str:
        return f"<Symbol {', '.join(self.list_output_names())}>"

    # Python's operators build nodes, except ``==``, which compares identity.
    __array_ufunc__ = None

    def __add__(self, other: Any) -> Symbol:
        return _arithmetic("add", self, other)

    def __radd__(self, other: Any) -> Symbol:
        return _arithmetic("add", self, other)

    def __sub__(self, other: Any) -> Symbol:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return _arithmetic("rsub", self, other)

    def __mul__(self, other: Any) -> Symbol:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return _arithmetic("mul", self, other)

    def __truediv__(self, other: Any) -> Symbol:
        return _arithmetic("div", self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return _arithmetic("rdiv", self, other)

    def __pow__(self, other: Any) -> Symbol:
        return _arithmetic("pow", self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return _arithmetic("rpow", self, other)

    def __neg__(self) -> Symbol:
        return apply_operator("negative", self)


def Variable(name: str, *, shape: Sequence[int] | None = None, dtype: str | None = None,
             **attrs: Any) -> Symbol:
    """A symbol for an input. ``shape``, with 0 for unknown sizes, and ``dtype`` become attributes.

    Attributes of the enclosing ``AttrScope`` are added.
    """
    found = {key: text_of(value) for key, value in attrs.items()}
    if shape is not None:
        found["__shape__"] = text_of(tuple(shape))
    if dtype is not None:
        found["__dtype__"] = dtype
    node = Node(None, name, AttrScope.merged(found), span=Span.of_caller())
    return Symbol((NodeEntry(node),))


def entries_of(values: Entries) -> tuple[NodeEntry, ...]:
    """The entries of a symbol, an entry or nested sequences; ``OptionError`` for others."""
    if isinstance(values, Symbol):
        return values.entries
    if isinstance(values, NodeEntry):
        return (values,)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise OptionError("not a symbol", got=type(values).__name__,
                          expected="a symbol, an entry of a node, or a list of them")
    return tuple(entry for value in values for entry in entries_of(value))


def Group(symbols: Entries) -> Symbol:
    """One symbol with the results of several."""
    return Symbol(entries_of(symbols))


def apply_operator(op: str | SymbolOp, *args: Entries, name: str | None = None,
                   attr_texts: Mapping[str, str] | None = None, **kwargs: Any) -> Symbol:
    """A node of the operator; symbols in ``kwargs`` are inputs by name, other values attributes.

    A sequence among ``args`` stands for its symbols. ``attr_texts`` are further attributes as
    texts. Missing inputs become variables ``<name>_<input>``. Raises ``RegistryError`` for an
    unknown operator, ``AttrsError`` and ``OptionError`` for unsuitable arguments.
    """
    found = op if isinstance(op, SymbolOp) else operator(op)
    inputs = {key: value for key, value in kwargs.items() if isinstance(value, (Symbol, NodeEntry))}
    given = _attributes(found, {key: v for key, v in kwargs.items() if key not in inputs})
    attrs = {key: text_of(value) for key, value in given.items()} | dict(attr_texts or {})
    if attr_texts is None:
        found.attrs_type.make(given)
    name = free_name(found.name) if name is None else name
    node = Node(found, name, AttrScope.merged(attrs), span=Span.of_caller())
    compose.compose((NodeEntry(node),), _inputs(found, node, args),
                    {key: _single(value) for key, value in inputs.items()}, name)
    visible = get_attr(found, "FNumVisibleOutputs")
    count = node.num_outputs if visible is None else visible(node.params)
    return Symbol([NodeEntry(node, index) for index in range(count)])


def _arithmetic(kind: str, left: Symbol, right: Any) -> Symbol:
    if isinstance(right, Symbol):
        return apply_operator(f"__{kind}_symbol__", left, right)
    if isinstance(right, Number):
        return apply_operator(f"__{kind}_scalar__", left, scalar=float(right))  # type: ignore[arg-type]
    return NotImplemented


def _attributes(op: SymbolOp, given: dict[str, Any]) -> dict[str, Any]:
    """``given`` without ``num_args``, which NNVM's operators of any number of inputs take."""
    has_own = COUNT in op.attrs_type.__dataclass_fields__
    return given if has_own else {key: v for key, v in given.items() if key != COUNT}


def _inputs(op: SymbolOp, node: Node, args: Sequence[Entries]) -> list[NodeEntry]:
    """The entries of positional inputs; where any number is taken, groups stand for all results."""
    names = op.inputs(node.params)
    if names and names[0].startswith("*"):
        return list(entries_of(args))
    found: list[NodeEntry] = []
    for arg in args:
        found += [_single(arg)] if isinstance(arg, (Symbol, NodeEntry)) else entries_of(arg)
    return found


def _single(value: Entries) -> NodeEntry:
    found = entries_of(value)
    if len(found) != 1:
        names = ", ".join(map(describe.output_name, found))
        raise OptionError("an input has several results", got=names, expected="a single result",
                          help="take one of them: symbol[0]")
    return found[0]


def _all_of(node: Node) -> tuple[NodeEntry, ...]:
    return tuple(NodeEntry(node, index) for index in range(node.num_outputs))
