"""In-place forms of functions, which all do the same: ``x.sin_()`` makes ``x`` hold ``x.sin()``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.in_place import assign

_NAMES = """
absolute acos acosh addbmm addmm addmv addr arccos arccosh arcsin arcsinh arctan arctan2 arctanh
asin asinh atan atan2 atanh baddbmm bitwise_and bitwise_left_shift bitwise_not bitwise_or
bitwise_right_shift bitwise_xor ceil clamp_max clamp_min clip conj_physical copysign cos cosh
cumprod cumsum deg2rad digamma divide eq erf erfc erfinv exp2 expm1 fix float_power floor
floor_divide fmod frac gcd ge greater greater_equal gt heaviside hypot i0 igamma igammac index_fill
lcm ldexp le less less_equal lgamma log10 log1p log2 logical_and logical_not logical_or logical_xor
logit lt multiply mvlgamma nan_to_num ne negative nextafter not_equal polygamma rad2deg reciprocal
remainder renorm round rsqrt sgn sign sin sinc sinh square subtract tan tril triu true_divide trunc
xlogy
"""


class InPlaceForms:
    """The in-place forms; each method returns the tensor."""

    __slots__ = ()


def _form(name: str) -> Callable[..., Any]:
    def change(self: Any, *args: Any, **named: Any) -> Any:
        return assign(self, getattr(self, name)(*args, **named), f"{name}_")

    change.__name__ = f"{name}_"
    change.__qualname__ = f"InPlaceForms.{name}_"
    change.__doc__ = f"``{name}``, in place."
    return change


for _name in _NAMES.split():
    setattr(InPlaceForms, f"{_name}_", _form(_name))
