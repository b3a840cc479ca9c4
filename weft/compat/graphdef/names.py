"""Names of nodes and tensors: ``scope/node``, ``scope/node:1``, ``^scope/node``."""

from __future__ import annotations

import re
from typing import NamedTuple

from weft.support.errors import InvalidModelError

CONTROL = -1
# TensorFlow's rule for names of nodes (node_def_util.cc); names of imported models may also start
# with an underscore.
_NODE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/>]*\Z")
_INNER_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.\-/>]*\Z")
_MAX_INDEX = 2**31 - 1


class TensorRef(NamedTuple):
    """Output ``index`` of ``node``; the index is ``CONTROL`` (-1) for the node itself."""

    node: str
    index: int

    def __str__(self) -> str:
        if self.index == CONTROL:
            return f"^{self.node}"
        return self.node if self.index == 0 else f"{self.node}:{self.index}"


def is_node_name(name: str, *, inner: bool = False) -> bool:
    """Whether a node may have this name; ``inner`` also allows a leading underscore."""
    return bool((_INNER_NAME if inner else _NODE_NAME).match(name))


def check_node_name(name: str, where: object = None, *, inner: bool = False) -> str:
    """``name``; raises ``InvalidModelError`` if no node may have it."""
    if not isinstance(name, str) or not is_node_name(name, inner=inner):
        raise InvalidModelError(
            f"invalid node name {name!r}", where=where,
            expected="a letter, digit or '.', then letters, digits and '_', '.', '-', '/', '>'")
    return name


def parse_tensor(text: str, where: object = None) -> TensorRef:
    """The tensor that ``node``, ``node:1`` or ``^node`` names; ``InvalidModelError`` if none."""
    if text.startswith("^"):
        name, index = text[1:], CONTROL
    else:
        name, colon, number = text.rpartition(":")
        if not colon:
            name, index = text, 0
        elif number.isdecimal() and (number == "0" or number[0] != "0") \
                and int(number) <= _MAX_INDEX:
            index = int(number)
        else:
            name, index = text, 0
    if not is_node_name(name, inner=True):
        raise InvalidModelError(f"invalid name of a tensor {text!r}", where=where,
                                expected="'node', 'node:1' or '^node'")
    return TensorRef(name, index)
