"""Locks that a forked child finds free.

``os.fork`` copies the calling thread alone. A lock that another thread held at that moment stays
taken in the child for ever, so the first call of a model there would wait without end. The data
under the registered locks are usable at any bytecode: work is done twice, or memory is not reused.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

# By the identity of the owner and the name of its attribute.
_owners: dict[tuple[int, str], weakref.ref[Any]] = {}


def renew_in_child(owner: object, attribute: str) -> None:
    """Give ``owner`` a new ``threading.Lock`` as ``attribute`` in each forked child.

    ``owner`` must support weak references.
    """
    key = id(owner), attribute
    _owners[key] = weakref.ref(owner, lambda _: _owners.pop(key, None))


def _after_fork() -> None:
    for (_, attribute), reference in list(_owners.items()):
        owner = reference()
        if owner is not None:
            setattr(owner, attribute, threading.Lock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
