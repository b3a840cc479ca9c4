"""Import of all converter modules, which register their converters in ``registry``."""

from __future__ import annotations

from weft.compat.graphdef.ops import array as ops_array
from weft.compat.graphdef.ops import control_flow as ops_control_flow
from weft.compat.graphdef.ops import frames as ops_frames
from weft.compat.graphdef.ops import image as ops_image
from weft.compat.graphdef.ops import math as ops_math
from weft.compat.graphdef.ops import nn as ops_nn
from weft.compat.graphdef.ops import reduce as ops_reduce
from weft.compat.graphdef.ops import slicing as ops_slicing
from weft.compat.graphdef.ops import state as ops_state
from weft.compat.graphdef.ops import structure as ops_structure
from weft.compat.graphdef.ops import windows as ops_windows

__all__ = ["ops_array", "ops_control_flow", "ops_frames", "ops_image", "ops_math", "ops_nn",
           "ops_reduce", "ops_slicing", "ops_state", "ops_structure", "ops_windows"]
