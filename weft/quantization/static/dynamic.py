"""Dynamic quantisation: 8-bit dense layers whose activations get a scale per row at run time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.ir import Call, Constant, DType, Expr, IRModule, const, infer_expr, post_order
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport
from weft.quantization.schemes import Samples
from weft.quantization.static.observe import relative_errors
from weft.quantization.static.ranges import stored_weight, weight_scales
from weft.quantization.static.sites import Site, report_of, simplified, sites_of
from weft.transform.analysis.graph import (
    as_function,
    enters,
    op_name,
    over_new_children,
)

_INT8, _INT32, _FLOAT32 = map(DType.of, ("int8", "int32", "float32"))
_LIMIT = 127.0


def run(module: IRModule, samples: Samples, options: QuantizationOptions
        ) -> tuple[IRModule, Sequence[LayerReport]]:
    """See ``SchemeRun``. Matmuls with constant weights; convolutions stay in float32.

    Layers whose relative error is above ``max_error`` stay too: that of their output where data is
    given, else that of their weight.
    """
    module = simplified(module)
    main = module["main"]
    sites = [s for s in sites_of(main, options)
             if op_name(s.call) == "nn.dense" and s.weight is not None]
    layers = {site.call: _layer(site, site.call.args[0]) for site in sites}
    errors = (relative_errors(module, list(layers.items()), samples) if samples
              else [_weight_error(site) for site in sites])
    reports = [report_of(site, error, options.max_error)
               for site, error in zip(sites, errors, strict=True)]
    chosen = {site.call: site for site, report in zip(sites, reports, strict=True)
              if not report.is_kept}
    new: dict[Expr, Expr] = {}
    stored: dict[Expr, tuple[Expr, Expr]] = {}
    for node in post_order(main, enter=enters):
        site = chosen.get(node) if isinstance(node, Call) else None
        if site is None:
            new[node] = over_new_children(node, new.__getitem__)
        else:
            data = site.call.args[0]
            if data not in stored:
                stored[data] = quantised_rows(new[data])
            new[node] = _of_rows(site, *stored[data])
    return module.with_function("main", as_function(new[main])), reports


def _layer(site: Site, data: Expr) -> Expr:
    return _of_rows(site, *quantised_rows(data))


def quantised_rows(data: Expr) -> tuple[Expr, Expr]:
    """Data as int8 around 0, and the scale of each row: the largest magnitude becomes 127."""
    largest = op.max(op.abs(data), axis=(-1,), keepdims=True, span=data.span)
    # A row of zeros has any scale.
    scale = op.multiply(op.maximum(largest, const(float(np.finfo(np.float32).tiny) * _LIMIT,
                                                  "float32")), const(1 / _LIMIT, "float32"))
    steps = op.round(op.divide(data, scale))
    clipped = op.clip(steps, a_min=-_LIMIT, a_max=_LIMIT)
    return (infer_expr(op.cast(clipped, dtype=_INT8, span=data.span), trust=True),
            infer_expr(scale, trust=True))


def _of_rows(site: Site, rows: Expr, scale: Expr) -> Expr:
    """The layer of quantised rows: an integer product, times the scales of rows and columns."""
    weight, attrs = site.call.args[1], site.call.attrs
    if not isinstance(weight, Constant):
        return site.call
    scales = weight_scales(weight.data, site.axis)
    stored = Constant(stored_weight(weight.data, scales, site.axis), span=weight.span)
    product = op.nn.dense(rows, stored, **{**dict(attrs.items()), "out_dtype": _INT32},
                          span=site.call.span)
    real = op.multiply(op.cast(product, dtype=_FLOAT32), op.multiply(scale, const(scales)))
    return infer_expr(real, trust=True)


def _weight_error(site: Site) -> float:
    weight = site.weight
    if weight is None:
        return 0.0
    scales = weight_scales(weight.data, site.axis)
    stored = stored_weight(weight.data, scales, site.axis).astype(np.float32)
    shape = [1] * weight.data.ndim
    shape[site.axis] = -1
    norm = float(np.linalg.norm(weight.data))
    lost = float(np.linalg.norm(stored * scales.reshape(shape) - weight.data))
    return lost / norm if norm else 0.0
