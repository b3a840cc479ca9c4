"""``DataParallel``: each rank computes a part of the batch, and gradients are averaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from weft.distributed.buckets import Reducer, broadcast_values
from weft.distributed.communicator import Communicator
from weft.distributed.process import check_agreement, communicator
from weft.eager.cell import MODE
from weft.eager.tensor import Tensor
from weft.eager.tracing.train_step import train_step
from weft.nn.modules.module import Module
from weft.nn.parameter import is_lazy
from weft.optim.optimizer import Optimizer
from weft.support.errors import InvalidInputError


class DataParallel(Module):
    """A module that every rank has, and whose gradients are the averages over all ranks.

    Parameters and buffers start as those of rank 0. The gradients are reduced in buckets of
    ``bucket_bytes`` while ``backward`` goes on. Parameters that a rank did not use count as zeros
    there; those that none used have no gradient. With a deterministic communicator the averages
    have the bits of one rank that accumulates the gradients of all parts in the order of ranks,
    and divides by their number.
    """

    _not_watched: ClassVar[frozenset[str]] = frozenset({"reducer", "group", "broadcasts"})

    def __init__(self, module: Module, group: Communicator | None = None, *,
                 bucket_bytes: int = 4 << 20, broadcast_buffers: bool = True) -> None:
        super().__init__()
        self.module = module
        self.group = communicator() if group is None else group
        self.broadcasts = broadcast_buffers
        parameters = [p for p in module.parameters() if p.requires_grad]
        lazy = [name for name, p in module.named_parameters() if is_lazy(p)]
        if lazy or not parameters:
            raise InvalidInputError(
                "a module without parameters" if not lazy else "parameters without a shape",
                got=", ".join(lazy) or type(module).__name__,
                help="call the module with an input first" if lazy else None)
        check_agreement(self.group, {name: f"{p.dtype} {tuple(p.shape)}" for name, p
                                     in (*module.named_parameters(), *module.named_buffers())},
                        "has another model")
        broadcast_values([*module.parameters(), *module.buffers()], self.group)
        self.reducer = Reducer(parameters, self.group, bucket_bytes)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if MODE.trace is None:
            self.share_buffers()
        return self.module(*args, **kwargs)

    def share_buffers(self) -> None:
        """Take the buffers (running averages) of rank 0; ``forward`` does so in training."""
        buffers = list(self.module.buffers())
        if self.broadcasts and self.training and MODE.grad and self.reducer.enabled and buffers:
            broadcast_values(buffers, self.group)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients on each rank; the next ``backward`` outside averages the sums."""
        before, self.reducer.enabled = self.reducer.enabled, False
        try:
            yield
        finally:
            self.reducer.enabled = before

    def reduce_gradients(self) -> None:
        """Average the gradients now: for a compiled program that left them in ``grad``."""
        self.reducer.reduce()

    def train_step(self, loss: Callable[..., Tensor], optimizer: Optimizer, *,
                   overlap: bool = False) -> Callable[..., Tensor]:
        """A compiled training step: one program for the gradients, one for the update.

        ``loss(*batch)`` calls this module. Between the programs the gradients are averaged, bucket
        by bucket. With ``overlap`` the backward pass is a program per bucket, and buckets are
        reduced while it goes on. Python then schedules the programs anew in each step, which pays
        where the exchange takes longer.
        """
        @train_step
        def gradients(*batch: Any) -> Tensor:
            optimizer.zero_grad()
            value = loss(*batch)
            value.backward()
            return value

        @train_step
        def update() -> None:
            optimizer.step()

        def step(*batch: Any) -> Tensor:
            self.share_buffers()
            value = gradients(*batch)
            self.reduce_gradients()
            update()
            return value

        def overlapped(*batch: Any) -> Tensor:
            optimizer.zero_grad()
            value = loss(*(x if isinstance(x, Tensor) else Tensor(x) for x in batch))
            value.backward()
            update()
            return value.detach()

        return overlapped if overlap else step
