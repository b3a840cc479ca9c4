"""The batcher: what runs together, in which order, and what becomes of errors and cancellations."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from tests.unit.serving.doubles import Rows
from weft.serving import Batcher, Limits, RefusedError
from weft.serving.observer import Observer
from weft.support.errors import InvalidInputError, OptionError


def rows(count: int, start: float = 0, width: int = 3) -> np.ndarray:
    return np.arange(start, start + count * width, dtype=np.float32).reshape(count, width)


def batcher_of(module: Rows, *, batched: bool = True, observer: Observer | None = None, **limits
               ) -> Batcher:
    limits = Limits(**{"max_delay": 0.05, "max_batch": 8, **limits})
    return Batcher(lambda arrays: module.run(None, {"x": arrays[0]}), batched=batched,
                   limits=limits, name="m", **({"observer": observer} if observer else {}))


async def first_request_taken(batcher: Batcher) -> None:
    """Wait until the first request has left the queue."""
    while batcher.waiting or batcher._scheduler is None:  # noqa: ASYNC110
        await asyncio.sleep(0)


def served(module: Rows, requests, **options):
    """The outcomes of requests that come at once."""
    async def run():
        batcher = batcher_of(module, **options)
        found = await asyncio.gather(*(batcher.submit([x]) for x in requests),
                                     return_exceptions=True)
        await batcher.close()
        return found

    return asyncio.run(run())


def test_requests_share_a_batch_and_get_their_own_rows():
    module, requests = Rows(), [rows(1), rows(3, 50), rows(2, 7)]
    found = served(module, requests)
    assert module.sizes == [(6, 3)]
    for x, (y,) in zip(requests, found, strict=True):
        np.testing.assert_array_equal(y, Rows().run(None, {"x": x})[0])


def test_a_batch_has_at_most_so_many_rows_and_a_larger_request_runs_alone():
    module = Rows()
    found = served(module, [rows(3), rows(3), rows(3), rows(20), rows(1)])
    assert module.sizes == [(6, 3), (3, 3), (20, 3), (1, 3)]
    assert [len(y) for (y,) in found] == [3, 3, 3, 20, 1]


def test_shapes_are_never_mixed():
    module = Rows("k")
    requests = [rows(1), rows(1, width=5), rows(2), rows(1, width=5)]
    found = served(module, requests)
    assert sorted(module.sizes) == [(2, 5), (3, 3)]
    for x, (y,) in zip(requests, found, strict=True):
        np.testing.assert_array_equal(y, 2 * x + x.sum(axis=-1, keepdims=True))


def test_without_a_batch_axis_requests_run_one_by_one():
    module = Rows(first=1)
    served(module, [rows(1), rows(1), rows(1)], batched=False)
    assert module.sizes == [(1, 3)] * 3


def test_what_arrives_while_a_batch_runs_forms_the_next_one():
    async def run():
        module = Rows()
        module.gate.clear()
        batcher = batcher_of(module, max_delay=0.0)
        tasks = [asyncio.create_task(batcher.submit([rows(1)]))]
        await first_request_taken(batcher)
        tasks += [asyncio.create_task(batcher.submit([rows(1, i)])) for i in range(4)]
        await asyncio.sleep(0)
        assert batcher.waiting == 4
        module.gate.set()
        await asyncio.gather(*tasks)
        await batcher.close()
        return module.sizes

    assert asyncio.run(run()) == [(1, 3), (4, 3)]


def test_one_bad_request_does_not_spoil_the_batch():
    bad = rows(1)
    bad[0, 0] = -13
    first, error, last = served(Rows(), [rows(1), bad, rows(2)])
    assert isinstance(error, InvalidInputError)
    assert (len(first[0]), len(last[0])) == (1, 2)


def test_a_full_queue_refuses():
    found = served(Rows(), [rows(1)] * 5, max_queue=3)
    refused = [f for f in found if isinstance(f, RefusedError)]
    assert len(refused) == 2
    assert refused[0].status == 429
    assert refused[0].retry_after == 1


def test_a_cancelled_request_leaves_the_queue_and_the_others_are_answered():
    async def run():
        module = Rows()
        module.gate.clear()
        batcher = batcher_of(module, max_queue=2, max_delay=0.0)
        running = asyncio.create_task(batcher.submit([rows(1)]))
        await first_request_taken(batcher)
        gone = asyncio.create_task(batcher.submit([rows(1)]))
        kept = asyncio.create_task(batcher.submit([rows(2)]))
        await asyncio.sleep(0)
        gone.cancel()
        running.cancel()  # its batch runs on, for no one
        await asyncio.sleep(0)
        assert batcher.waiting == 1
        module.gate.set()
        (y,) = await kept
        await batcher.close()
        return y, module.sizes

    y, sizes = asyncio.run(run())
    assert len(y) == 2
    assert sizes == [(1, 3), (2, 3)]


def test_the_first_of_a_batch_may_be_cancelled_while_it_waits():
    async def run():
        module = Rows()
        batcher = batcher_of(module, max_delay=0.05)
        first = asyncio.create_task(batcher.submit([rows(1)]))
        await asyncio.sleep(0.01)
        second = asyncio.create_task(batcher.submit([rows(2)]))
        await asyncio.sleep(0)
        first.cancel()
        await second
        await batcher.close()
        return module.sizes

    assert asyncio.run(run()) == [(2, 3)]


def test_closing_answers_the_queue_and_refuses_what_comes_later():
    async def run():
        module = Rows()
        batcher = batcher_of(module, max_delay=60.0)
        tasks = [asyncio.create_task(batcher.submit([rows(1)])) for _ in range(3)]
        await asyncio.sleep(0)
        await batcher.close()
        assert all(task.done() for task in tasks)
        with pytest.raises(RefusedError, match="stopping"):
            await batcher.submit([rows(1)])
        return module.sizes

    assert asyncio.run(run()) == [(3, 3)]


def test_a_batcher_goes_on_in_another_event_loop():
    module = Rows()
    batcher = batcher_of(module, max_delay=0.0)
    for _ in range(2):
        asyncio.run(batcher.submit([rows(1)]))
    asyncio.run(batcher.close())
    assert len(module.sizes) == 2


def test_a_module_that_drops_rows_is_found_out():
    class Dropping(Rows):
        def run(self, names, feeds):
            return [y[:1] for y in super().run(names, feeds)]

    found = served(Dropping(), [rows(1), rows(1, 9)])
    for x, (y,) in zip([rows(1), rows(1, 9)], found, strict=True):
        np.testing.assert_array_equal(y, Rows().run(None, {"x": x})[0])


def test_batches_are_reported():
    class Notes(Observer):
        def __init__(self):
            self.batches = []

        def batch(self, model, requests, rows):
            self.batches.append((model, requests, rows))

    notes = Notes()
    served(Rows(), [rows(2), rows(3)], observer=notes)
    assert notes.batches == [("m", 2, 5)]


@pytest.mark.parametrize(("name", "value"), [
    ("max_batch", 0), ("max_queue", True), ("max_body", 1.5), ("max_delay", -1),
    ("timeout", float("inf")), ("drain", "soon")])
def test_invalid_limits(name, value):
    with pytest.raises(OptionError, match=name):
        Limits(**{name: value})


@pytest.mark.parametrize("turns", range(1, 6))
def test_a_request_that_is_cancelled_at_the_end_of_its_delay(turns):
    async def run():
        batcher = batcher_of(Rows(), max_delay=0.0)
        gone = asyncio.create_task(batcher.submit([rows(1)]))
        for _ in range(turns):  # in one of these turns of the loop the delay ends, too
            await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        await asyncio.sleep(0)
        assert not batcher._scheduler.done()
        found = await asyncio.wait_for(batcher.submit([rows(1)]), 5)
        await batcher.close()
        return found

    assert len(asyncio.run(run())[0]) == 1
