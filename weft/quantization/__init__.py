"""Models in fewer bits: ``weft.quantize``, its schemes, and its report.

small = weft.quantize("model.onnx", scheme="int4")
print(small.report)
mod = weft.compile(small)
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.quantization.api": "QuantizedModule quantize",
    "weft.quantization.language": "QuantizedWeights quantize_weights",
    "weft.quantization.options": "QuantizationOptions",
    "weft.quantization.report": "LayerReport QuantizationReport",
    "weft.quantization.schemes": "SCHEMES Scheme",
}
load_names_lazily(__name__, NAMES)
