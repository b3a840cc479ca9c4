"""Executors: what runs calls here, in processes of this machine, or elsewhere.

``weft.distributed.executors`` adds workers on other machines.
"""

from weft.runtime.executors.base import MEASURE, Call, Executor, Shared, Worker
from weft.runtime.executors.inline import Inline
from weft.runtime.executors.processes import Processes

__all__ = ["MEASURE", "Call", "Executor", "Inline", "Processes", "Shared", "Worker"]
