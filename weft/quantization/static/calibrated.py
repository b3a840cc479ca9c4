"""Static quantisation: 8-bit layers whose ranges come from calibration data."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Function, IRModule
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport
from weft.quantization.schemes import Samples
from weft.quantization.static.insert import isolated_layers, with_quantized_layers
from weft.quantization.static.observe import histograms, relative_errors
from weft.quantization.static.ranges import method_named, quantizer_of
from weft.quantization.static.sites import (
    Site,
    anchors_of,
    quantised_readers,
    simplified,
    sites_of,
)
from weft.quantization.static.smooth import smoothed
from weft.transform.analysis.graph import op_name, shape_of


def run(module: IRModule, samples: Samples, options: QuantizationOptions, *,
        smooth: bool = False) -> tuple[IRModule, Sequence[LayerReport]]:
    """See ``SchemeRun``. With ``smooth`` the outliers of activations move into the weights first.

    Layers whose relative error is above ``max_error`` stay in float32. The error of a layer is the
    one that its own operands cause: they are exact otherwise.
    """
    method_named(options.calibration)
    module = simplified(module)
    if smooth:
        module = smoothed(module, samples, options)
    main = module["main"]
    sites = sites_of(main, options)
    ends_only = options.calibration == "minmax"
    seen = histograms(module, list(anchors_of(sites)), samples, ends_only=ends_only)
    quantizers = {tensor: quantizer_of(found, options.calibration, options.percentile,
                                       options.activations) for tensor, found in seen.items()}
    pairs = list(zip([site.call for site in sites], isolated_layers(sites, quantizers),
                     strict=True))
    errors = relative_errors(module, pairs, samples)
    bound = options.max_error
    reports = [report_of(site, error, bound) for site, error in zip(sites, errors, strict=True)]
    chosen = [site for site, error in zip(sites, errors, strict=True)
              if bound is None or error <= bound]
    anchors = anchors_of(chosen)
    result = with_quantized_layers(main, chosen, {a: quantizers[a] for a in anchors},
                                   quantised_readers(main, anchors))
    return module.with_function("main", result), reports


def report_of(site: Site, error: float, bound: float | None) -> LayerReport:
    """What became of a site."""
    is_kept = bound is not None and error > bound
    weight = site.weight
    size = 0 if weight is None else weight.data.nbytes
    return LayerReport(
        layer=site.name, operator=op_name(site.call), before="float32",
        shape=tuple(shape_of(site.call)) if weight is None else weight.data.shape,
        after="float32" if is_kept else "int8", error=error, bytes_before=size,
        reason=f"error above {bound:g}" if is_kept else "",
        bytes_after=size if is_kept else size // 4)
