"""Times the implementations of kernels, for records that override the cost models."""

from weft.tune.measure import KernelTask, TunedKernel, measure_kernel
from weft.tune.running_kernel import RunningKernel

__all__ = ["KernelTask", "RunningKernel", "TunedKernel", "measure_kernel"]
