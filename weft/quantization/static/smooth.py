"""SmoothQuant: outliers of activations move into the weights (Xiao et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, Function, IRModule, const, infer_expr, post_order
from weft.quantization.options import QuantizationOptions
from weft.quantization.schemes import Samples
from weft.quantization.static.insert import fake_quantised, fake_weight
from weft.quantization.static.observe import channel_ends, relative_errors
from weft.quantization.static.ranges import Histogram, Quantizer, quantizer_of
from weft.quantization.static.sites import sites_of
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters, op_name, over_new_children

STRENGTHS = (0.5, 0.65, 0.8, 0.95)


@dataclass(frozen=True, slots=True)
class _Layer:
    """``nn.dense`` with a constant weight, whose output channels are ``axis``."""

    call: Call
    weight: Constant
    axis: int

    def times(self, factors: np.ndarray) -> Constant:
        """The weight, with each input channel multiplied."""
        scaled = self.weight.data * np.expand_dims(factors, self.axis)
        return Constant(scaled, span=self.weight.span)


def smoothed(module: IRModule, samples: Samples, options: QuantizationOptions) -> IRModule:
    """The same function of its inputs, whose dense layers read ``x / s`` and hold ``s * w``.

    ``s = max|x|**a / max|w|**(1 - a)`` for each input channel, with ``a`` as ``smoothing``. Without
    one each tensor takes the one of ``STRENGTHS``, or no smoothing, that leaves its layers the
    smallest errors. Layers that read the same tensor share ``s``. The division becomes part of the
    kernel that computes x.
    """
    main = module["main"]
    readers: dict[Expr, list[_Layer]] = {}
    for site in sites_of(main, options):
        if op_name(site.call) == "nn.dense" and site.weight is not None:
            layer = _Layer(site.call, site.weight, site.axis)
            readers.setdefault(site.call.args[0], []).append(layer)
    ends = channel_ends(module, list(readers), samples)
    trials = [{tensor: _factors(ends[tensor], layers, strength)
               for tensor, layers in readers.items()}
              for strength in (STRENGTHS if options.smoothing is None else (options.smoothing,))]
    if options.smoothing is None:
        trials = [{tensor: np.ones_like(s) for tensor, s in trials[0].items()}, *trials]
    found = trials[0]
    if len(trials) > 1:
        losses = [_losses(module, readers, ends, trial, samples, options) for trial in trials]
        found = {tensor: min(zip(losses, trials, strict=True),
                             key=lambda pair, t=tensor: pair[0][t])[1][tensor]
                 for tensor in readers}
    return module.with_function("main", _rewritten(main, readers, found))


def _losses(
    module: IRModule, readers: Mapping[Expr, Sequence[_Layer]], ends: Mapping[Expr, np.ndarray],
    factors: Mapping[Expr, np.ndarray], samples: Samples, options: QuantizationOptions,
) -> dict[Expr, float]:
    """The squared relative errors of the layers that read each tensor, with these factors."""
    pairs: list[tuple[Expr, Expr]] = []
    for tensor, layers in readers.items():
        data = fake_quantised(_divided(tensor, factors[tensor]),
                              _quantizer(ends[tensor] / factors[tensor], options))
        pairs += [(layer.call, infer_expr(layer.call.replace(
            args=(data, fake_weight(layer.times(factors[tensor]), layer.axis)),
            checked_type=None), trust=True)) for layer in layers]
    errors = iter(relative_errors(module, pairs, samples))
    return {tensor: sum(next(errors) ** 2 for _ in layers) for tensor, layers in readers.items()}


def _quantizer(ends: np.ndarray, options: QuantizationOptions) -> Quantizer:
    seen = Histogram()
    seen.add(ends)
    return quantizer_of(seen, "minmax", options.percentile, options.activations)


def _factors(ends: np.ndarray, layers: Sequence[_Layer], strength: float) -> np.ndarray:
    activations = np.abs(ends).max(axis=0)
    weights = np.max([np.abs(layer.weight.data).max(axis=layer.axis) for layer in layers], axis=0)
    is_usable = (activations > 0) & (weights > 0)
    x, w = np.where(is_usable, activations, 1), np.where(is_usable, weights, 1)
    return np.clip(x**strength / w ** (1 - strength), 1e-5, 1e5).astype(np.float32)


def _divided(tensor: Expr, factors: np.ndarray) -> Expr:
    if (factors == 1).all():
        return tensor
    inverse = const((1 / factors).astype(np.float32))
    return infer_expr(op.multiply(tensor, inverse, span=tensor.span), trust=True)


def _rewritten(main: Function, readers: Mapping[Expr, Sequence[_Layer]],
               factors: Mapping[Expr, np.ndarray]) -> Function:
    found = {layer.call: layer for layers in readers.values() for layer in layers}
    new: dict[Expr, Expr] = {}
    inputs: dict[Expr, Expr] = {}
    for node in post_order(main, enter=enters):
        layer = found.get(node) if isinstance(node, Call) else None
        if layer is None:
            new[node] = over_new_children(node, new.__getitem__)
            continue
        tensor = layer.call.args[0]
        if tensor not in inputs:
            inputs[tensor] = _divided(new[tensor], factors[tensor])
        args = (inputs[tensor], layer.times(factors[tensor]))
        new[node] = infer_expr(layer.call.replace(args=args, checked_type=None), trust=True)
    return as_function(new[main])
