"""Executors: ``Inline``, ``Processes`` of this machine, and by ``Dask`` workers anywhere.

executor = open_executor("processes:4")             # or "inline", "dask", "tcp://10.0.0.1:8786"
futures = [executor.submit(function, x) for x in items]
for future in executor.as_completed(futures):
    use(future.result())
"""

from weft.distributed.executors.dask_executor import Dask
from weft.distributed.executors.opening import open_executor
from weft.runtime.executors import MEASURE, Call, Executor, Inline, Processes, Shared, Worker

__all__ = ["MEASURE", "Call", "Dask", "Executor", "Inline", "Processes", "Shared", "Worker",
           "open_executor"]
