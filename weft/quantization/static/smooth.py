"""SmoothQuant: outliers of activations move into the weights (Xiao et al., 2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, Function, IRModule, const, infer_expr, post_order
from weft.quantization.options import QuantizationOptions
from weft.quantization.schemes import Samples
from weft.quantization.static.observe import channel_maxima
from weft.quantization.static.sites import sites_of
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters, op_name, over_new_children


@dataclass(frozen=True, slots=True)
class _Layer:
    """``nn.dense`` with a constant weight, whose output channels are ``axis``."""

    call: Call
    weight: Constant
    axis: int


def smoothed(module: IRModule, samples: Samples, options: QuantizationOptions) -> IRModule:
    """The same function of its inputs, whose dense layers read ``x / s`` and hold ``s * w``.

    ``s = max|x|**a / max|w|**(1 - a)`` for each input channel, with ``a`` as ``smoothing``. Layers
    that read the same tensor share ``s``. The division becomes part of the kernel that computes x.
    """
    main = module["main"]
    readers: dict[Expr, list[_Layer]] = {}
    for site in sites_of(main, options):
        if op_name(site.call) == "nn.dense" and site.weight is not None:
            layer = _Layer(site.call, site.weight, site.axis)
            readers.setdefault(site.call.args[0], []).append(layer)
    maxima = channel_maxima(module, list(readers), samples)
    factors = {tensor: _factors(maxima[tensor], layers, options.smoothing)
               for tensor, layers in readers.items()}
    return module.with_function("main", _rewritten(main, readers, factors))


def _factors(activations: np.ndarray, layers: Sequence[_Layer], strength: float) -> np.ndarray:
    weights = np.max([np.abs(layer.weight.data).max(axis=layer.axis) for layer in layers], axis=0)
    is_usable = (activations > 0) & (weights > 0)
    x, w = np.where(is_usable, activations, 1), np.where(is_usable, weights, 1)
    return np.clip(x**strength / w ** (1 - strength), 1e-5, 1e5).astype(np.float32)


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
            inverse = const((1 / factors[tensor]).astype(np.float32))
            inputs[tensor] = infer_expr(op.multiply(new[tensor], inverse, span=node.span),
                                        trust=True)
        scaled = layer.weight.data * np.expand_dims(factors[tensor], layer.axis)
        weight = Constant(scaled, span=layer.weight.span)
        changed = layer.call.replace(args=(inputs[tensor], weight), checked_type=None)
        new[node] = infer_expr(changed, trust=True)
    return as_function(new[main])
