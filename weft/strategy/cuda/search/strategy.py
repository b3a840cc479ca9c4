"""Strategies of ``argwhere`` and ``unique``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from weft import te
from weft.ir import Attrs, Call, Shape, TensorType, typical_size
from weft.op.transform.search import UniqueAttrs
from weft.strategy.cuda.common.schedule_externs import schedule_computes
from weft.strategy.cuda.machine_model import machine_model
from weft.strategy.cuda.search import compact
from weft.strategy.cuda.sort.strategy import sort_seconds
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CudaTarget


@strategy("argwhere", target="cuda", complete=True)
def argwhere(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    model, shape = machine_model(target), _shape(call)

    def compute(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
        return compact.argwhere(x, model)

    moved = math.prod(map(typical_size, shape)) * 8.0 * (3 + len(shape))
    yield Implementation("argwhere.cuda.scan", schedule_computes, compute=compute,
                         seconds=4 * model.launch_seconds + moved / model.bandwidth)


@strategy("unique", target="cuda", complete=True)
def unique(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    model, (size,) = machine_model(target), _shape(call)
    is_sorted = attrs_of(call, UniqueAttrs).is_sorted

    def compute(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
        return compact.unique(x, is_sorted=is_sorted, model=model)

    if not isinstance(size, int) or not size:
        # The launches of a sort depend on the size: one thread sorts a row of a symbolic one.
        yield Implementation("unique.cuda.serial", lambda _: None)
        return
    seconds = sort_seconds(1, size, 8, size, model) + 6 * model.launch_seconds
    yield Implementation("unique.cuda.sort", schedule_computes, compute=compute, seconds=seconds)


def _shape(call: Call) -> Shape:
    source = call.args[0].checked_type
    if not isinstance(source, TensorType):
        raise InternalError("a search in something that is no tensor", got=str(source))
    return source.shape
