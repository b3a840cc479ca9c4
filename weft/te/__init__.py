"""Tensor expressions (what is computed) and their schedules (how it is computed).

Everything is used as ``te.compute``, ``te.sum``, …: ``from weft import te``.
"""

from __future__ import annotations

from weft.te.compute import compute, extern, placeholder, reduce_axis, var
from weft.te.instruction import find_instruction, instruction
from weft.te.lower import lower
from weft.te.math import (
    abs,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    cos,
    erf,
    exp,
    floor,
    fma,
    fmod,
    isnan,
    likely,
    log,
    popcount,
    pow,
    power,
    prefetch,
    reinterpret,
    round,
    rsqrt,
    shift_left,
    shift_right,
    sigmoid,
    sin,
    sqrt,
    tan,
    tanh,
    trunc,
)
from weft.te.python_extern import python_extern
from weft.te.recurrence import scan
from weft.te.reduce import (
    Reducer,
    all,
    any,
    argmax,
    argmin,
    comm_reducer,
    max,
    max_value,
    min,
    min_value,
    prod,
    sum,
)
from weft.te.role import PACKED_OPERANDS, StageRole
from weft.te.schedule import Schedule, Stage, create_schedule
from weft.te.tensor import (
    ComputeOp,
    ExternOp,
    IterVar,
    Operation,
    PlaceholderOp,
    ScanOp,
    Tensor,
)
from weft.te.walk import input_tensors, loads_of, rewrite_body
from weft.tir.expr import all_of, any_of, const, if_then_else, maximum, minimum, not_, select

__all__ = ["PACKED_OPERANDS", "ComputeOp", "ExternOp", "IterVar", "Operation", "PlaceholderOp",
           "Reducer", "ScanOp", "Schedule", "Stage", "StageRole", "Tensor", "abs", "all", "all_of",
           "any", "any_of", "argmax", "argmin", "bitwise_and", "bitwise_not", "bitwise_or",
           "bitwise_xor", "ceil", "comm_reducer", "compute", "const", "cos", "create_schedule",
           "erf", "exp", "extern", "find_instruction", "floor", "fma", "fmod", "if_then_else",
           "input_tensors", "instruction", "isnan", "likely", "loads_of", "log", "lower", "max",
           "max_value", "maximum", "min", "min_value", "minimum", "not_", "placeholder", "popcount",
           "pow", "power", "prefetch", "prod", "python_extern", "reduce_axis", "reinterpret",
           "rewrite_body", "round", "rsqrt", "scan", "select", "shift_left", "shift_right",
           "sigmoid", "sin", "sqrt", "sum", "tan", "tanh", "trunc", "var"]
