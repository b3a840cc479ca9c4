"""Cases of operators that an emulated GPU does not run as the CPU does, with reasons.

``test_cuda.py`` fails for a listed case that works: delete its line then. It also fails for a
case that is neither listed nor works. ``python -m tests.unit.cuda.op.cuda_cases`` runs all cases
and prints those that fail or run on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatch

# Cases with kernels that run on the host.
_COUNTED = "the data decides the sizes of its results"
ON_HOST: dict[str, str] = {
    "argwhere-*": _COUNTED,
    "unique-*": _COUNTED,
    "sparse_fill_empty_rows-*": _COUNTED,
    "vision.all_class_non_max_suppression-*": _COUNTED,
    "dyn.strided_slice-[23]": _COUNTED,
}
# Cases that fail, by compiler from LLVM IR to PTX.
_SIMULATED = {"device_copy-0": "it names a simulated device, which programs for a GPU refuse"}
FAILING: dict[str, dict[str, str]] = {"nvptx": _SIMULATED, "nvvm": _SIMULATED}


def reason_for(table: Mapping[str, str], case: str) -> str | None:
    """Why ``case`` is in ``table``: by its id, or by a pattern of ids."""
    return next((why for pattern, why in table.items() if fnmatch(case, pattern)), None)
