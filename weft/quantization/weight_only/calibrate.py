"""Second moments of the data of layers, by running the program with that data as its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from weft.compiler.api import compile
from weft.ir import Expr, Function, IRModule, Tuple, infer_type, input_names, post_order
from weft.ir.analysis import known_type
from weft.quantization.schemes import Samples
from weft.quantization.weight_only.gram import Gram
from weft.quantization.weight_only.layers import Layer, data_of
from weft.support import progress
from weft.support.errors import InvalidInputError

_BUDGET = 1 << 30  # bytes of second moments that are held at a time


def chunks_of(layers: Sequence[Layer]) -> Iterator[list[Layer]]:
    """The layers in order, in lists whose second moments fit into memory together.

    Layers that read one tensor are in one list.
    """
    by_data: dict[Expr, list[Layer]] = {}
    for layer in layers:
        by_data.setdefault(data_of(layer.calls[0]), []).append(layer)
    chunk: list[Layer] = []
    held = 0
    for readers in by_data.values():
        size = 4 * readers[0].shape[1] ** 2
        if chunk and held + size > _BUDGET:
            yield chunk
            chunk, held = [], 0
        chunk += readers
        held += size
    if chunk:
        yield chunk


def grams_of(module: IRModule, layers: Iterable[Layer], samples: Samples) -> dict[Expr, Gram]:
    """The second moments of each tensor that a layer of ``main`` reads, over all samples.

    Tensors inside of functions and branches have none.
    """
    main = module["main"]
    outer = set(post_order(main.body, enter=lambda e: not isinstance(e, Function)))
    wanted = list(dict.fromkeys(data_of(call) for layer in layers for call in layer.calls
                                if data_of(call) in outer))
    grams = {data: Gram.zeros(_size(data)) for data in wanted}
    if not wanted:
        return grams
    tapped = _tapped(module, wanted)
    executable = compile(tapped)
    used = set(input_names(tapped))
    with progress.task("calibrating", len(samples)) as task:
        for sample in samples:
            results = executable.run(None, {n: v for n, v in sample.items() if n in used})
            for data, values in zip(wanted, results, strict=True):
                _add(grams[data], np.asarray(values))
            task.advance()
    return grams


def _size(data: Expr) -> int:
    return int(known_type(data).shape[-1])  # type: ignore[union-attr]


def _add(gram: Gram, values: np.ndarray) -> None:
    if not np.isfinite(values.astype(np.float32, copy=False)).all():
        raise InvalidInputError("calibration data makes activations that are not finite",
                                expected="finite numbers", got="NaN or infinity")
    gram.add(values)


def _tapped(module: IRModule, wanted: Sequence[Expr]) -> IRModule:
    """The program that computes ``wanted``, with the same inputs as far as it needs them."""
    main = module["main"]
    body = Tuple(tuple(wanted))
    used = set(post_order(body))
    kept = [(param, name) for param, name in zip(main.params, input_names(module), strict=True)
            if param in used]
    function = Function(tuple(param for param, _ in kept), body, span=main.span)
    return infer_type(dataclasses.replace(
        module, functions={**module.functions, "main": function},
        attrs={"input_names": tuple(name for _, name in kept)}, settled={}, named={}))


def gram_of(layer: Layer, grams: Mapping[Expr, Gram]) -> Gram | None:
    """The second moments of all data of a layer; ``None`` if some are not known."""
    found = [grams.get(data_of(call)) for call in layer.calls]
    first = found[0]
    if first is None or any(one is None for one in found):
        return None
    others = [one for one in found[1:] if one is not None and one is not first]
    if not others:
        return first
    return Gram(first.products + sum(o.products for o in others),
                first.magnitudes + sum(o.magnitudes for o in others),
                first.rows + sum(o.rows for o in others))
