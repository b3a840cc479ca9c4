"""Finding out where a model goes wrong: every tensor, beside those of another evaluation.

``compare`` runs a model layer by layer against onnxruntime, the reference interpreter or another
build of weft; ``first_wrong_pass`` and ``first_wrong_kernel`` find the part of the compiler that
changed a value; ``shrink`` cuts a model down to the operators that show an error.
docs/debugging.md is the page for users, ``weft debug`` the command.
"""

from weft.debug.bisect import first_wrong_kernel, first_wrong_pass
from weft.debug.compare import Comparison, TensorDifference, compare
from weft.debug.shrink import Reproduction, shrink
from weft.debug.tensors import ModelTensors

__all__ = [
    "Comparison",
    "ModelTensors",
    "Reproduction",
    "TensorDifference",
    "compare",
    "first_wrong_kernel",
    "first_wrong_pass",
    "shrink",
]
