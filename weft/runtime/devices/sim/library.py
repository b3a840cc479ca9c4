"""``SimLibrary``: the code of a program, loaded once for each of its devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.runtime.device import HOST, Device
from weft.runtime.devices.cpu.threads import Threading
from weft.runtime.devices.sim.description import SimDevice
from weft.runtime.library import HostLibrary, Kernel, NativeLibrary
from weft.support.errors import ArtifactError


class SimLibrary(HostLibrary):
    """``load`` gives the code anew: the number of threads is a variable of the loaded code."""

    def __init__(self, devices: Sequence[SimDevice], load: Callable[[], NativeLibrary]) -> None:
        self.devices = tuple(devices)
        places = (HOST, *(one.device for one in self.devices))
        self._loaded = {device: load() for device in places}
        self._threading = {device: Threading(code) for device, code in self._loaded.items()}

    def on(self, device: Device) -> NativeLibrary:
        """The code that runs on a device; ``ArtifactError`` for one without."""
        found = self._loaded.get(device)
        if found is None:
            raise ArtifactError(f"the program has no code for {device}",
                                expected=", ".join(map(str, self._loaded)))
        return found

    def kernel(self, symbol: str, num_args: int, device: Device = HOST, stream: int = 0) -> Kernel:
        """See ``Library.kernel``; the launch returns when the kernel is done."""
        return self.on(device).kernel(symbol, num_args, device, stream)

    def apply_threads(self, host: int) -> None:
        """Give each device its own threads, and the host ``host`` threads, from now on."""
        self._threading[HOST].apply(host)
        for one in self.devices:
            self._threading[one.device].apply_own(one.device, one.threads)
