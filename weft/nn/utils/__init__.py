"""weft.nn.utils: clipping of gradients, parameters as one vector, norms and parametrizations of
weights, quantisation-aware training.
"""

from weft.nn.utils import parametrizations, parametrize
from weft.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, get_total_norm
from weft.nn.utils.quantization import convert_qat, prepare_qat
from weft.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from weft.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from weft.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "convert_qat",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prepare_qat",
    "remove_spectral_norm",
    "remove_weight_norm",
    "spectral_norm",
    "vector_to_parameters",
    "weight_norm",
]
