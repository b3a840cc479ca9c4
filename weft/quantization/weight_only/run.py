"""Weight-only quantisation of typed programs: constant matrices become blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from weft.ir import Constant, Expr, IRModule, PassContext, run_pass
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport
from weft.quantization.schemes import Samples
from weft.quantization.weight_only.calibrate import chunks_of, gram_of, grams_of
from weft.quantization.weight_only.gram import Gram
from weft.quantization.weight_only.layers import Blocks, Layer, data_of, layers_of, with_blocks
from weft.quantization.weight_only.matrix import Quantizer
from weft.support import progress
from weft.transform import ToGraphNormalForm

KEPT = "kept by keep="


def run(module: IRModule, samples: Samples, options: QuantizationOptions, *, method: str,
        format: str, with_data: str = "") -> tuple[IRModule, Sequence[LayerReport]]:
    """See ``SchemeRun``. ``with_data`` is the method where calibration data is given."""
    chosen = with_data if with_data and samples else method
    quantizer = Quantizer(chosen, options.format or format, options)
    module = run_pass(ToGraphNormalForm(), module, PassContext())
    layers = layers_of(module, tables=options.embeddings)
    blocks: dict[Layer, Blocks] = {}
    reports: dict[Layer, LayerReport] = {}
    with progress.task("quantising", len(layers)) as task:
        for chunk in _chunks(layers, bool(samples)):
            grams = grams_of(module, [one for one in chunk if not one.is_table], samples) \
                if samples else {}
            for readers in _by_data(chunk):
                _quantize(readers, quantizer, grams, blocks, reports, task)
    return with_blocks(module, blocks), [reports[layer] for layer in layers]


def _chunks(layers: Sequence[Layer], measured: bool) -> Iterator[Sequence[Layer]]:
    tables = [layer for layer in layers if layer.is_table]
    rest = [layer for layer in layers if not layer.is_table]
    if tables:
        yield tables
    if measured:
        yield from chunks_of(rest)
    elif rest:
        yield rest


def _by_data(layers: Iterable[Layer]) -> Iterable[list[Layer]]:
    """Layers by the tensor that they read; tables alone."""
    found: dict[object, list[Layer]] = {}
    for layer in layers:
        found.setdefault(layer if layer.is_table else data_of(layer.calls[0]), []).append(layer)
    return found.values()


def _quantize(readers: Sequence[Layer], quantizer: Quantizer, grams: Mapping[Expr, Gram],
              blocks: dict[Layer, Blocks], reports: dict[Layer, LayerReport],
              task: progress.Task) -> None:
    """Quantise layers that read one tensor; they share factors of its channels."""
    changed = [one for one in readers if not quantizer.options.keeps(one.name)]
    # A layer that reads several tensors would need one set of factors for all.
    alone = all(len({data_of(call) for call in one.calls}) == 1 for one in changed)
    factors = quantizer.factors([one.matrix for one in changed], gram_of(changed[0], grams)) \
        if changed and alone and not changed[0].is_table else None
    for layer in readers:
        if layer not in changed:
            reports[layer] = _report(layer, None, None, KEPT)
        else:
            gram = None if layer.is_table else gram_of(layer, grams)
            made, reason = quantizer.quantized(layer.matrix, gram, factors)
            found = None
            if made is not None:
                found = blocks[layer] = Blocks(Constant(made.blocks, span=layer.weight.span),
                                               made.format, made.factors)
            reports[layer] = _report(layer, found, None if made is None else made.error, reason)
        task.advance(layer.name)


def _report(layer: Layer, blocks: Blocks | None, error: float | None, reason: str) -> LayerReport:
    data = layer.weight.data
    before = str(layer.weight.tensor_type.dtype)
    return LayerReport(
        layer=layer.name, operator=layer.operator, shape=layer.shape, before=before,
        after=before if blocks is None else blocks.format, error=error, reason=reason,
        bytes_before=data.nbytes,
        bytes_after=data.nbytes if blocks is None else blocks.constant.data.nbytes)
