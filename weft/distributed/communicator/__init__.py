"""How ranks exchange arrays: one interface, and a back end for threads, for gloo and for MPI."""

from weft.distributed.communicator.base import Communicator
from weft.distributed.communicator.local import run_local
from weft.distributed.communicator.pending import Pending

__all__ = ["Communicator", "Pending", "run_local"]
