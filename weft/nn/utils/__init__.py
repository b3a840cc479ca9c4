"""weft.nn.utils: clipping of gradients, parameters as one vector, weight normalization."""

from weft.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, get_total_norm
from weft.nn.utils.vectors import parameters_to_vector, vector_to_parameters
from weft.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "get_total_norm",
    "parameters_to_vector",
    "remove_weight_norm",
    "vector_to_parameters",
    "weight_norm",
]
