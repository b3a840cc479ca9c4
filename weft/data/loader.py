"""The data loader: batches of a dataset, epoch after epoch."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import Any

from weft.data.collate import default_collate
from weft.data.dataset import IterableDataset
from weft.data.fetch import Fetcher
from weft.data.loader_state import check_state, state_of
from weft.data.prefetch import Prefetcher
from weft.data.sample_random import seed_of
from weft.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from weft.data.workers import Task, WorkerPool
from weft.support.errors import OptionError
from weft.support.progress import UNWATCHED, active_reporter, reporter_for


class DataLoader:
    """Batches of a dataset; each ``iter(loader)`` is the next epoch.

    The arguments are those of ``torch.utils.data.DataLoader``; ``seed``, or that of ``generator``,
    is the seed of all epochs. Batches are NumPy arrays in the structure of a sample, or weft
    tensors with ``tensors=True`` and where samples are tensors. ``pin_memory``,
    ``pin_memory_device``, ``persistent_workers`` and ``in_order`` change nothing: batches are in
    order, and workers live for an epoch.

    ``num_workers`` processes read batches, ``prefetch_factor`` batches ahead each (2 by default);
    with ``num_workers=0`` and a ``prefetch_factor``, a thread does. The batches are the same for
    every number of workers. ``progress=True``, or a title, shows a bar with ``detail`` beside it.

    ``state_dict`` after a batch and ``load_state_dict`` continue with the batch that follows.
    Raises ``OptionError`` for arguments that contradict each other, ``DataError`` if a sample
    cannot be read.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Iterable[int] | None = None,
        batch_sampler: Iterable[list[int]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,  # noqa: ARG002 - torch's argument, as are those below
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: str | None = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,  # noqa: ARG002
        pin_memory_device: str = "",  # noqa: ARG002
        in_order: bool = True,  # noqa: ARG002
        seed: int = 0,
        tensors: bool = False,
        progress: bool | str = False,
    ) -> None:
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.seed = seed_of(generator, seed)
        self.num_workers = num_workers
        self.collate_fn = collate_fn or default_collate
        self.timeout = timeout
        self.prefetch_factor = prefetch_factor
        self.multiprocessing_context = multiprocessing_context or "spawn"
        self.worker_init_fn = worker_init_fn
        self.tensors = tensors
        self.progress = progress
        self.detail = ""
        self._shuffle = bool(shuffle)
        self._given = (sampler, batch_sampler)
        self._check()
        self._next = (0, 0)  # epoch and batch at which the next iteration starts
        self._position = (0, 0)  # epoch and number of batches delivered

    def _check(self) -> None:
        sampler, batch_sampler = self._given
        is_stream = isinstance(self.dataset, IterableDataset)
        wrong = [
            (is_stream and (self._shuffle or sampler is not None or batch_sampler is not None),
             "an IterableDataset has an order of its own: no shuffle and no sampler"),
            (is_stream and self.num_workers > 0,
             ("an IterableDataset is one sequence, which workers cannot share; "
              "prefetch_factor= reads ahead in a thread")),
            (self._shuffle and sampler is not None, "shuffle and sampler exclude each other"),
            (batch_sampler is not None and (self.batch_size not in (1, None) or self._shuffle
                                            or sampler is not None or self.drop_last),
             "batch_sampler excludes batch_size, shuffle, sampler and drop_last"),
            (self.batch_size is not None and self.batch_size <= 0, "batch_size is not positive"),
            (self.batch_size is None and self.drop_last, "drop_last needs a batch_size"),
            (self.num_workers < 0, "num_workers is negative"),
            (self.prefetch_factor is not None and self.prefetch_factor <= 0,
             "prefetch_factor is not positive"),
            (self.timeout < 0, "timeout is negative"),
        ]
        for is_wrong, text in wrong:
            if is_wrong:
                raise OptionError(f"DataLoader: {text}")

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or the next one if the last was read to its end."""
        return self._position[0]

    @property
    def sampler(self) -> Any:
        """The order of the samples."""
        if self._given[0] is not None:
            return self._given[0]
        if self._shuffle:
            return RandomSampler(self.dataset, seed=self.seed)
        return SequentialSampler(self.dataset)

    @property
    def batch_sampler(self) -> Any:
        """The indices of the batches; None if ``batch_size`` is None: samples are not batched."""
        if self._given[1] is not None or self.batch_size is None:
            return self._given[1]
        return BatchSampler(self.sampler, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        """Batches of an epoch. ``TypeError`` for a dataset without a length."""
        if isinstance(self.dataset, IterableDataset):
            samples = range(len(self.dataset))  # type: ignore[arg-type] - TypeError is meant
            return len(BatchSampler(samples, self.batch_size or 1, self.drop_last))
        batches = self.batch_sampler
        return len(self.sampler) if batches is None else len(batches)

    def __iter__(self) -> Iterator[Any]:
        epoch, start = self._next
        self._next = (epoch + 1, 0)
        self._position = (epoch, start)
        return self._epoch(epoch, start)

    def _epoch(self, epoch: int, start: int) -> Iterator[Any]:
        """The batches of one epoch from number ``start``; whatever ends it releases everything."""
        with ExitStack() as stack:
            batches = self._batches(epoch, start, stack)
            bar = stack.enter_context(self._bar(epoch)) if self.progress else UNWATCHED
            for _ in range(start if self.progress else 0):
                bar.advance()
            for number, batch in enumerate(batches, start + 1):
                self._position = (epoch, number)
                bar.advance(self.detail)
                yield _tensors(batch) if self.tensors else batch
        self._position = (epoch + 1, 0)

    def _batches(self, epoch: int, start: int, stack: ExitStack) -> Iterator[Any]:
        if isinstance(self.dataset, IterableDataset):
            source = self._stream(start)
        else:
            fetcher = Fetcher(self.dataset, self._collate, self.seed)
            tasks = (Task(epoch, indices) for indices in self._indices(epoch, start))
            if self.num_workers:
                pool = WorkerPool(fetcher, self.num_workers, self.timeout,
                                  self.multiprocessing_context, self.worker_init_fn)
                stack.enter_context(closing(pool))
                return pool.batches(tasks, self.prefetch_factor or 2)
            source = (fetcher(task.epoch, task.indices) for task in tasks)
        if self.prefetch_factor is None:
            return source
        return stack.enter_context(closing(Prefetcher(source, self.prefetch_factor)))

    @property
    def _collate(self) -> Callable[[list[Any]], Any]:
        return self.collate_fn if self.batch_size is not None or self._given[1] else _only

    def _indices(self, epoch: int, start: int) -> Iterator[list[int]]:
        batches = self.batch_sampler
        order = self.sampler if batches is None else batches
        if hasattr(order, "set_epoch"):
            order.set_epoch(epoch)
        if batches is None:
            order = ([int(index)] for index in order)
        return itertools.islice(iter(order), start, None)

    def _stream(self, start: int) -> Iterator[Any]:
        size = self.batch_size or 1
        samples = self.dataset.skip(start * size)
        while chunk := list(itertools.islice(samples, size)):
            if self.drop_last and len(chunk) < size:
                return
            yield self._collate(chunk)

    def _bar(self, epoch: int) -> Any:
        try:
            total = len(self)
        except TypeError:
            total = None
        title = self.progress if isinstance(self.progress, str) else "epoch"
        reporter = active_reporter() or reporter_for(sys.stderr)
        return reporter.task(f"{title} {epoch}", total)

    def state_dict(self) -> dict[str, int | None]:
        """The position after the last batch that was delivered, as numbers for a checkpoint."""
        return state_of(self, *self._position)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next iteration continue where ``state_dict`` was called.

        Raises ``DataError`` if the state is of a loader with another dataset or batch size.
        """
        check_state(self, state)
        self.seed = int(state["seed"])
        self._next = self._position = (int(state["epoch"]), int(state["batch"]))


def _only(samples: list[Any]) -> Any:
    return samples[0]


def _tensors(batch: Any) -> Any:
    """A batch with weft tensors instead of its arrays."""
    import numpy as np

    import weft

    if isinstance(batch, np.ndarray):
        return weft.tensor(batch)
    if isinstance(batch, Mapping):
        return {key: _tensors(value) for key, value in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_tensors(value) for value in batch]
        if hasattr(batch, "_fields"):
            return type(batch)(*parts)
        return type(batch)(parts)
    return batch
