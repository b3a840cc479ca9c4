"""The in-place forms that ``in_place`` does not spell out, by the names of their methods."""

from __future__ import annotations

from weft.eager.in_place import in_place
from weft.eager.methods import Functions

_NAMES = """
absolute acos acosh addbmm addmm addmv addr arccos arccosh arcsin arcsinh arctan arctan2 arctanh
asin asinh atan atan2 atanh baddbmm bitwise_left_shift bitwise_not bitwise_right_shift clamp_max
clamp_min clip conj_physical copysign cosh cumprod cumsum deg2rad digamma eq erf erfc erfinv exp2
expm1 fix float_power frac gcd ge greater greater_equal gt heaviside hypot i0 igamma igammac
index_copy index_put index_reduce lcm ldexp le less less_equal lgamma log10 log1p log2 logical_not
logit lt masked_scatter mvlgamma nan_to_num ne negative nextafter not_equal polygamma put rad2deg
renorm scatter_reduce sgn sinc sinh tan tril triu true_divide xlogy
"""


class InPlaceForms:
    """Further in-place forms, which return the tensor."""

    __slots__ = ()


for _name in _NAMES.split():
    setattr(InPlaceForms, f"{_name}_", in_place(getattr(Functions, _name)))
