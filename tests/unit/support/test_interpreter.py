"""The limit of recursion is one of the process; walks in several threads share a higher one."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.support.interpreter import deep_recursion, rare_collections


@pytest.fixture(autouse=True)
def _limit_as_before() -> Iterator[None]:
    before = sys.getrecursionlimit()
    yield
    sys.setrecursionlimit(before)


def nested(depth: int) -> int:
    return 0 if depth == 0 else 1 + nested(depth - 1)


def test_a_walk_is_deeper_than_the_limit_allows() -> None:
    limit = sys.getrecursionlimit()
    with deep_recursion():
        assert nested(20_000) == 20_000
    assert sys.getrecursionlimit() == limit
    with pytest.raises(RecursionError):
        nested(20_000)


def test_a_thread_that_is_done_leaves_room_for_the_others() -> None:
    """The first walk begins first and ends first, in the middle of the second one."""
    limit, results = sys.getrecursionlimit(), []
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))

    def first() -> None:
        with deep_recursion():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(10)
        with deep_recursion():
            second_is_in.set()
            first_is_out.wait(10)
            try:
                results.append(nested(20_000))
            except RecursionError as error:
                results.append(error)

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [20_000]
    assert sys.getrecursionlimit() == limit


@given(st.lists(st.integers(0, 4), max_size=30))
@settings(deadline=None)
def test_any_order_of_entering_and_leaving_restores_the_limit(turns: list[int]) -> None:
    """A walker enters at its first turn and leaves at its second, and so on."""
    limit, walkers = sys.getrecursionlimit(), {}
    for walker in turns:
        if walker in walkers:
            walkers.pop(walker).close()
        else:
            walkers[walker] = ExitStack()
            walkers[walker].enter_context(deep_recursion())
        assert (sys.getrecursionlimit() > limit) == bool(walkers)
    for stack in walkers.values():
        stack.close()
    assert sys.getrecursionlimit() == limit


def test_a_limit_that_the_program_sets_meanwhile_stays() -> None:
    with deep_recursion():
        sys.setrecursionlimit(7777)
    assert sys.getrecursionlimit() == 7777


def generation_of(one: object) -> int:
    return next(n for n in range(3) if any(o is one for o in gc.get_objects(generation=n)))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch, unfrozen: None) -> Iterator[dict[str, object]]:
    """The modules of the interpreter as ``rare_collections`` sees them."""
    found: dict[str, object] = {}
    monkeypatch.setattr("weft.support.interpreter.sys", SimpleNamespace(modules=found))
    yield found
    monkeypatch.undo()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="its generations are others")
@pytest.mark.parametrize("imports", [0, 300], ids=["imports nothing", "imports the compiler"])
def test_what_a_block_made_is_old_if_it_imported_much(modules: dict[str, object], imports: int
                                                      ) -> None:
    """Otherwise cyclic garbage would wait for full collections, which would hardly come."""
    gc.collect()
    before = gc.get_threshold()
    with rare_collections():
        young = ["young"]
    assert generation_of(young) < 2
    with rare_collections(ages=True):
        made = ["made"]
        modules.update({f"module{n}": None for n in range(imports)})
        assert gc.get_threshold()[0] > before[0]
    assert (generation_of(made) == 2) is (imports > 0)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_objects_that_the_user_froze_stay_frozen(modules: dict[str, object]) -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with rare_collections(ages=True):
            modules.update({f"module{n}": None for n in range(300)})
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
