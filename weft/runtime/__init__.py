"""Running compiled code; needs NumPy alone (and ml_dtypes for data of such types)."""

from weft.runtime.manifest import ConstantSpec, KernelCall, Manifest, TargetSpec, TensorSpec
from weft.runtime.module import CompiledModule
from weft.runtime.threads import num_threads, set_num_threads

__all__ = [
    "CompiledModule",
    "ConstantSpec",
    "KernelCall",
    "Manifest",
    "TargetSpec",
    "TensorSpec",
    "num_threads",
    "set_num_threads",
]
