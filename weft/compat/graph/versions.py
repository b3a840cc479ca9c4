"""Versions of graphs: producer and oldest consumer (``tensorflow/core/public/version.h``)."""

from __future__ import annotations

from weft.compat.graphdef.definitions import Versions
from weft.support.errors import InvalidModelError

# The version that weft writes and reads: TensorFlow 2.17. Later features of the format do not
# concern weft's operators. Graphs of every producer are read.
CURRENT = 1882
OLDEST_PRODUCER = 0


def check_versions(versions: Versions, where: object) -> None:
    """Raise ``InvalidModelError`` for a graph that requires a newer consumer."""
    if versions.min_consumer > CURRENT:
        raise InvalidModelError("the graph needs a newer reader", where=where,
                                expected=f"min_consumer up to {CURRENT}",
                                got=str(versions.min_consumer))
    if versions.producer < OLDEST_PRODUCER:
        raise InvalidModelError("the graph comes from an unknown producer", where=where,
                                expected=f"producer from {OLDEST_PRODUCER}",
                                got=str(versions.producer))
    if CURRENT in versions.bad_consumers:
        raise InvalidModelError(f"the graph refuses readers of version {CURRENT}", where=where,
                                help="write the graph again with its producer")


def merged(a: Versions, b: Versions) -> Versions:
    """The versions of a graph with nodes of both: the older producer, the newer oldest consumer."""
    bad = tuple(sorted({*a.bad_consumers, *b.bad_consumers}))
    return Versions(min(a.producer, b.producer), max(a.min_consumer, b.min_consumer), bad)
