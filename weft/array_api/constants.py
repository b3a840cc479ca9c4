"""The constants of the standard."""

import math

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None
