"""Static quantisation: 8-bit layers whose ranges come from calibration data."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import IRModule
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport
from weft.quantization.schemes import Samples
from weft.quantization.static import dynamic
from weft.quantization.static.insert import isolated_layers, with_quantized_layers
from weft.quantization.static.observe import histograms, relative_errors
from weft.quantization.static.ranges import method_named, quantizer_of
from weft.quantization.static.sites import (
    anchors_of,
    joined_parts,
    quantised_readers,
    report_of,
    simplified,
    sites_of,
)
from weft.quantization.static.smooth import smoothed


def run(module: IRModule, samples: Samples, options: QuantizationOptions, *,
        smooth: bool = False) -> tuple[IRModule, Sequence[LayerReport]]:
    """See ``SchemeRun``. Without data the ranges are found at run time (``dynamic``).

    With ``smooth`` the outliers of activations move into the weights first. Layers whose relative
    error is above ``max_error`` stay in float32. The error of a layer is the one that its own
    operands cause: they are exact otherwise.
    """
    method_named(options.calibration)
    if not samples:
        return dynamic.run(module, samples, options)
    module = simplified(module)
    if smooth:
        module = smoothed(module, samples, options)
    main = module["main"]
    sites = sites_of(main, options)
    ends_only = options.calibration == "minmax"
    seen = histograms(module, list(anchors_of(sites)), samples, ends_only=ends_only)
    quantizers = {tensor: quantizer_of(found, options.calibration, options.percentile,
                                       options.activations) for tensor, found in seen.items()}
    for part, whole in joined_parts(quantizers):
        quantizers[part] = quantizers[whole]
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
