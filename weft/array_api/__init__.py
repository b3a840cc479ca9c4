"""weft.array_api: the names of the array API standard, version 2024.12, over tensors of weft.

``Tensor.__array_namespace__`` returns this package. Its functions have the standard's arguments and
semantics where those of ``weft``, which are torch's, differ: arrays without axes take part in
promotion like others, and ``sum`` of small integers is int64 or uint64.
"""

from weft.support.lazy_package import load_names_lazily

__array_api_version__ = "2024.12"

NAMES = {  # module -> the public names it defines
    "weft.array_api": "fft linalg",
    "weft.array_api.constants": "e inf nan newaxis pi",
    "weft.array_api.creation": (
        "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones "
        "ones_like tril triu zeros zeros_like"),
    "weft.array_api.data_types": "astype broadcast_arrays can_cast finfo iinfo isdtype result_type",
    "weft.array_api.elementwise": (
        "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert "
        "bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos "
        "cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite "
        "isinf isnan less less_equal log log10 log1p log2 logaddexp logical_and logical_not "
        "logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow "
        "real reciprocal remainder round sign signbit sin sinh sqrt square subtract tan tanh "
        "trunc"),
    "weft.array_api.inspection": "__array_namespace_info__",
    "weft.array_api.linear": "matmul matrix_transpose tensordot vecdot",
    "weft.array_api.manipulation": (
        "broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze "
        "stack tile unstack"),
    "weft.array_api.searching": (
        "argmax argmin argsort count_nonzero nonzero searchsorted sort take take_along_axis "
        "unique_all unique_counts unique_inverse unique_values where"),
    "weft.array_api.statistics": (
        "all any cumulative_prod cumulative_sum diff max mean min prod std sum var"),
    "weft.eager.dtypes": (
        "bool_=bool complex128 complex64 float32 float64 int16 int32 int64 int8 uint16 uint32 "
        "uint64 uint8"),
}
load_names_lazily(__name__, NAMES)
