"""Import of all converter modules, which register their converters in ``registry``."""

from __future__ import annotations

from weft.frontend.graphdef.ops import array as ops_array
from weft.frontend.graphdef.ops import control_flow as ops_control_flow
from weft.frontend.graphdef.ops import frames as ops_frames
from weft.frontend.graphdef.ops import image as ops_image
from weft.frontend.graphdef.ops import math as ops_math
from weft.frontend.graphdef.ops import nn as ops_nn
from weft.frontend.graphdef.ops import reduce as ops_reduce
from weft.frontend.graphdef.ops import slicing as ops_slicing
from weft.frontend.graphdef.ops import state as ops_state
from weft.frontend.graphdef.ops import structure as ops_structure
from weft.frontend.graphdef.ops import windows as ops_windows

__all__ = ["ops_array", "ops_control_flow", "ops_frames", "ops_image", "ops_math", "ops_nn",
           "ops_reduce", "ops_slicing", "ops_state", "ops_structure", "ops_windows"]
