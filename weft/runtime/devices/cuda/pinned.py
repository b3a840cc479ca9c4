"""Page-locked host memory, which the device copies from and to without a detour."""

from __future__ import annotations

import weakref

import numpy as np

from weft.runtime.arena import array_at
from weft.runtime.devices.cuda.context import DeviceContext


class PinnedBlock:
    """``nbytes`` of page-locked memory at ``address``; ``array`` is a ``uint8`` view of it.

    Work of the device that uses it must be done when the object is deleted.
    """

    __slots__ = ("__weakref__", "_finalizer", "address", "array", "nbytes")

    def __init__(self, context: DeviceContext, nbytes: int) -> None:
        context.activate()
        self.nbytes = nbytes
        self.address = context.driver.allocate_host(nbytes)
        self.array: np.ndarray = array_at(self.address, (nbytes,), np.dtype(np.uint8))
        self._finalizer = weakref.finalize(self, context.driver.free_host, self.address)
        setattr(self._finalizer, "atexit", False)  # noqa: B010 - a property that the stubs lack
