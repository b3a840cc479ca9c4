"""Every operator of Relay's inventory is implemented, or listed as out of scope."""

from __future__ import annotations

from tests.unit.op.relay_inventory import (
    LEVELS,
    OTHERWISE,
    OUT_OF_SCOPE,
    missing,
    relay_operators,
)
from weft.ir.op import OPS


def test_the_list_is_whole():
    counts = {level: len(names.split()) for level, names in LEVELS.items()}
    assert counts == {"1": 54, "2": 31, "3": 58, "4": 38, "5": 25, "6": 5, "10": 50, "11": 34,
                      "none": 9}
    assert len(relay_operators()) == 304


def test_every_name_leads_somewhere():
    assert set(OTHERWISE.values()) <= set(OPS)
    assert not set(OTHERWISE) & set(OUT_OF_SCOPE)
    assert set(OTHERWISE) | set(OUT_OF_SCOPE) <= set(relay_operators())
    assert not set(OUT_OF_SCOPE) & set(OPS)
    assert missing() == []
