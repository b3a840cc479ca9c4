"""Why a start was not warm: what changed since the last entry of the same model.

The cache keeps, for each model, digests of the parts that its last key was made of: the file or
the code, globals and weights of a module, the options, weft's own sources. They decide about
nothing: a model of the same name with other parts is merely compared with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from weft.support.cache import DiskCache

WARM = "warm: code and weights came from the disk cache"
# More names than these are summed up.
_NAMED = 6


def cold(reason: str) -> str:
    """The line of ``explain()`` about a start that was not warm."""
    return f"cold: {reason}"


def remember_parts(cache: DiskCache, identity: str, parts: Mapping[str, str]) -> None:
    """Keep the parts of a new entry of the model ``identity``, if it has a name."""
    if identity:
        cache.put(_key(identity), json.dumps(dict(parts)).encode())


def changed_since(cache: DiskCache | None, identity: str, parts: Mapping[str, str]) -> str:
    """What differs from the parts of the last entry of the model, or that there is none."""
    if not identity or cache is None:
        return "the cache has no entry for this program with these options"
    found = cache.get(_key(identity))
    if found is None:
        return f"the cache has no entry for {identity}"
    before: dict[str, str] = json.loads(bytes(found))
    changed = [label for label in parts if parts[label] != before.get(label)]
    gone = [label for label in before if label not in parts]
    named = [_change(label, before.get(label), parts.get(label)) for label in (*changed, *gone)]
    if not named:
        return f"the entry for {identity} was evicted or could not be written"
    more = f"; and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return "; ".join(named[:_NAMED]) + more


def _change(label: str, before: str | None, now: str | None) -> str:
    if before is None:
        return f"{label} is new"
    return f"{label} is gone" if now is None else f"{label} changed"


def _key(identity: str) -> str:
    return hashlib.sha256(f"parts of {identity}".encode()).hexdigest()
