"""Composition: variables are replaced by symbols; versions of mutated variables (NNVM)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.slots import get_attr
from weft.support.errors import InvalidModelError, OptionError
from weft.support.suggestion import did_you_mean


def next_name(variable: str) -> str:
    """The name of the result that holds the next value of a mutated variable."""
    return f"{variable}_next"


def mutated_inputs(node: Node) -> tuple[int, ...]:
    """The indices of the inputs that a node mutates (the slot ``FMutateInputs``)."""
    if node.op is None or not node.inputs:
        return ()
    slot: Callable[[Any], Sequence[int]] | None = get_attr(node.op, "FMutateInputs")
    return () if slot is None else tuple(slot(node.params))


def compose(heads: Sequence[NodeEntry], args: Sequence[NodeEntry],
            kwargs: Mapping[str, NodeEntry], name: str) -> None:
    """``Symbol.compose``, which documents it."""
    first = heads[0].node
    if first.is_variable:
        raise OptionError("a variable cannot be composed", got=first.name)
    if name:
        first.name = name
    if first.inputs or first.control_deps:
        _replace_variables(heads, args, kwargs)
    else:
        _give_inputs(first, args, kwargs)


def _give_inputs(node: Node, args: Sequence[NodeEntry], kwargs: Mapping[str, NodeEntry]) -> None:
    """Connect an operator that has no inputs yet."""
    assert node.op is not None
    names = tuple(get_attr(node.op, "FListInputNames")(node.params))
    if names and names[0].startswith("*"):
        if kwargs:
            raise OptionError(f"{node.op.name} takes its inputs by position",
                              got=", ".join(kwargs))
        node.inputs = list(args)
    else:
        if len(args) > len(names):
            raise OptionError(f"{node.op.name} takes {len(names)} inputs", got=len(args),
                              expected=", ".join(names))
        rest = names[len(args):]
        _check_keywords(kwargs, rest)
        node.inputs = [*args, *(kwargs.get(key) or _variable_for(node, key) for key in rest)]
    update_versions(node)
    slot = get_attr(node.op, "FSetInputVarAttrOnCompose")
    for index, entry in enumerate(node.inputs):
        if slot is not None and entry.node.is_variable:
            slot(node.params, entry.node, index)


def _variable_for(node: Node, key: str) -> NodeEntry:
    """A variable for an input that is not given, with the attributes of users on the node."""
    own = {f.name for f in dataclasses.fields(node.params)}
    attrs = {k: v for k, v in node.attrs.items() if k not in own}
    return NodeEntry(Node(None, f"{node.name}_{key}" if node.name else key, attrs, span=node.span))


def _replace_variables(heads: Sequence[NodeEntry], args: Sequence[NodeEntry],
                       kwargs: Mapping[str, NodeEntry]) -> None:
    """Replace variables by entries, by their order or by their names."""
    variables = [node for node in walk(heads) if node.is_variable]
    if len(args) > len(variables):
        raise OptionError(f"the graph has {len(variables)} variables", got=len(args))
    by_name = {node.name: node for node in variables[len(args):]}
    _check_keywords(kwargs, by_name)
    given = dict(zip(variables, args, strict=False))
    given |= {by_name[key]: entry for key, entry in kwargs.items()}
    for node in list(walk(heads)):
        changed = [given.get(e.node, e) for e in node.inputs]
        if any(new is not old for new, old in zip(changed, node.inputs, strict=True)):
            node.inputs = changed
            update_versions(node)


def _check_keywords(kwargs: Iterable[str], names: Iterable[str]) -> None:
    known = list(names)
    for key in kwargs:
        if key not in known:
            raise OptionError(f"there is no input {key!r}", expected=", ".join(known) or "none",
                              help=did_you_mean(key, known))


def update_versions(node: Node) -> None:
    """Let ``node`` read the latest version of variables, and count up those that it mutates."""
    node.inputs = [NodeEntry(e.node, e.index, e.node.version) if e.node.is_variable else e
                   for e in node.inputs]
    if node.op is None:
        return
    for index in mutated_inputs(node):
        target = node.inputs[index].node
        if not target.is_variable:
            raise InvalidModelError("only a variable can be mutated", where=node.span,
                                    got=f"{target.name!r}, input {index} of {node.name!r}")
        target.version += 1
        node.inputs[index] = NodeEntry(target, 0, target.version)
