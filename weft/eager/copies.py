"""Copies of tensors, by ``copy`` and ``pickle``: those that share memory go on to share it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from weft.eager.cell import alias, new_cell, node_of, view_of
from weft.eager.device import CPU, device, resolved
from weft.eager.grad_mode import no_grad
from weft.eager.node import Node, value_node
from weft.eager.placement import moved
from weft.eager.record import as_array
from weft.eager.storage import Memory, ViewOp
from weft.support.errors import InvalidInputError, WeftError

if TYPE_CHECKING:
    import numpy as np


# Where tensors of a file go, by where they were.
_LOCATED: ContextVar[Callable[[device], Any] | None] = ContextVar("weft_located", default=None)


@contextmanager
def located(location: Any) -> Iterator[None]:
    """Restore tensors on the device ``location``, or, of a dictionary, on that of their own one."""
    if isinstance(location, Mapping):
        table = {device(key): value for key, value in location.items()}
        token = _LOCATED.set(lambda where: table.get(where, where))
    else:
        resolved(location)
        token = _LOCATED.set(lambda _: location)
    try:
        yield
    finally:
        _LOCATED.reset(token)


def _place(where: device) -> device:
    """The device of a tensor that was at ``where``."""
    located_at = _LOCATED.get()
    try:
        return resolved(where if located_at is None else located_at(where))
    except WeftError as error:
        raise error.at(None, "the file holds a tensor of this device: weft.load(path, "
                             'map_location="cpu") reads it elsewhere') from None


class Copies:
    """The protocols of ``copy`` and ``pickle``."""

    __slots__ = ()

    def __reduce__(self: Any) -> Any:
        if self._view is not None:
            return _restored_view, (self._view.root, self._view.ops,
                                    self.requires_grad and self.is_leaf)
        node = node_of(self)
        array, where = self._array(), node.sig.out.device
        shared = self._memory if self._memory and len(self._memory.members) > 1 else None
        place = () if where is CPU else (where,)
        return _restored, (type(self), array, self.requires_grad and self.is_leaf, shared, *place)

    def __copy__(self: Any) -> Any:
        return like(self, alias(node_of(self)))

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if not self.is_leaf:
            raise InvalidInputError("deepcopy of a tensor that is not a leaf",
                                    help="copy x.detach()")
        if self._view is not None:
            found = _restored_view(copy.deepcopy(self._view.root, memo), self._view.ops,
                                   self.requires_grad)
        else:
            found = like(self, alias(node_of(self)))
            if self._memory is not None and len(self._memory.members) > 1:
                found._memory = memo.setdefault(id(self._memory), Memory())  # noqa: SLF001
                found._memory.add(found)  # noqa: SLF001
        memo[id(self)] = found
        if self._grad is not None:
            found.grad = self._grad.detach()
        return found


def like(cell: Any, node: Node) -> Any:
    """A tensor of the class of ``cell`` with another node."""
    found = new_cell(type(cell), node)
    found.__dict__.update(cell.__dict__)
    if cell.requires_grad:
        found.requires_grad_()
    return found


def _restored(cls: type[Any], array: np.ndarray, requires_grad: bool,
              shared: Memory | None = None, where: device = CPU) -> Any:
    found = new_cell(cls, moved(value_node(*as_array(array)), _place(where)))
    if requires_grad:
        found.requires_grad_()
    if shared is not None:
        found._memory = shared  # noqa: SLF001 - cells are of this package
        shared.add(found)
    return found


def _restored_view(base: Any, ops: tuple[ViewOp, ...], requires_grad: bool) -> Any:
    with no_grad():
        found = view_of(base, *ops)
    return found.requires_grad_() if requires_grad else found
