"""Tensor expressions (what is computed) and their schedules (how it is computed).

Everything is used as ``te.compute``, ``te.sum``, …: ``from weft import te``.
"""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.te.compute": "compute extern placeholder reduce_axis var",
    "weft.te.device_kernel": "device_kernel",
    "weft.te.instruction": "find_instruction instruction",
    "weft.te.lower": "lower",
    "weft.te.math": (
        "abs bitwise_and bitwise_not bitwise_or bitwise_xor ceil cos erf exp floor fma fmod isnan "
        "likely log popcount pow power prefetch reinterpret round rsqrt shift_left shift_right "
        "sigmoid sin sqrt tan tanh trunc"
    ),
    "weft.te.python_extern": "python_extern",
    "weft.te.recurrence": "scan",
    "weft.te.reduce": (
        "Reducer all any argmax argmin comm_reducer max max_value min min_value prod sum"
    ),
    "weft.te.role": "PACKED_OPERANDS StageRole",
    "weft.te.schedule": "Schedule Stage create_schedule",
    "weft.te.tensor": "ComputeOp ExternOp IterVar Operation PlaceholderOp ScanOp Tensor",
    "weft.te.walk": "input_tensors loads_of rewrite_body",
    "weft.tir.expr": "all_of any_of const if_then_else maximum minimum not_ select",
}
load_names_lazily(__name__, NAMES)
