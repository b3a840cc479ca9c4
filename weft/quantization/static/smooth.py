"""SmoothQuant: outliers of activations move into the weights (Xiao et al., 2022)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, Function, IRModule, const, infer_expr, post_order
from weft.quantization.options import QuantizationOptions
from weft.quantization.schemes import Samples
from weft.quantization.static.observe import channel_maxima
from weft.quantization.static.sites import Site, simplified, sites_of
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import as_function, enters, op_name, over_new_children
from weft.topi.layout import Layout


def smoothed(module: IRModule, samples: Samples, options: QuantizationOptions) -> IRModule:
    """The same function of its inputs, whose dense layers read ``x / s`` and hold ``s * w``.

    ``s = max|x|**a / max|w|**(1 - a)`` for each input channel, with ``a`` as ``smoothing``. Layers
    that read the same tensor share ``s``. The division becomes part of the kernel that computes x.
    """
    main = module["main"]
    readers: dict[Expr, list[Site]] = {}
    for site in sites_of(main, options):
        if op_name(site.call) == "nn.dense" and site.weight is not None:
            readers.setdefault(site.call.args[0], []).append(site)
    maxima = channel_maxima(module, list(readers), samples)
    factors = {tensor: _factors(maxima[tensor], sites, options.smoothing)
               for tensor, sites in readers.items()}
    return module.with_function("main", _rewritten(main, readers, factors))


def _factors(activations: np.ndarray, sites: Sequence[Site], strength: float) -> np.ndarray:
    weights = np.max([_input_maxima(site) for site in sites], axis=0)
    with np.errstate(all="ignore"):
        factors = activations**strength / weights ** (1 - strength)
    is_usable = np.isfinite(factors) & (activations > 0) & (weights > 0)
    return np.where(is_usable, np.maximum(factors, 1e-5), 1).astype(np.float32)


def _input_maxima(site: Site) -> np.ndarray:
    """The largest magnitude of the weights of each input channel."""
    return np.asarray(np.abs(site.weight.data).max(axis=site.axis))


def _rewritten(main: Function, readers: dict[Expr, list[Site]], factors: dict[Expr, np.ndarray]
               ) -> Function:
    layers = {site.call: site for sites in readers.values() for site in sites}
    new: dict[Expr, Expr] = {}
    inputs: dict[Expr, Expr] = {}
    for node in post_order(main, enter=enters):
        if node not in layers or not isinstance(node, Call):
            new[node] = over_new_children(node, new.__getitem__)
            continue
        tensor = node.args[0]
        if tensor not in inputs:
            inverse = const((1 / factors[tensor]).astype(np.float32))
            inputs[tensor] = infer_expr(op.multiply(new[tensor], inverse, span=node.span),
                                        trust=True)
        site = layers[node]
        scaled = site.weight.data * np.expand_dims(factors[tensor], site.axis)
        weight = Constant(scaled, span=site.weight.span)
        new[node] = infer_expr(node.replace(args=(inputs[tensor], weight), checked_type=None),
                               trust=True)
    return as_function(new[main])
