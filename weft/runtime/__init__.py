"""Loading and running compiled modules. Depends only on NumPy, and ml_dtypes for its dtypes."""

from weft.runtime.devices.cpu.threads import num_threads, set_num_threads
from weft.runtime.manifest import ConstantSpec, KernelCall, Manifest, TargetSpec, TensorSpec

__all__ = [
    "ConstantSpec",
    "KernelCall",
    "Manifest",
    "TargetSpec",
    "TensorSpec",
    "num_threads",
    "set_num_threads",
]
