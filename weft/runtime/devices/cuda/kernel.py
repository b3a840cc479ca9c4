"""A loaded kernel of a program: from the addresses of its arguments to launches."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from weft.runtime.devices.cuda.context import DeviceContext
from weft.runtime.devices.cuda.driver import Geometry, Parameter, TensorMap
from weft.runtime.devices.cuda.errors import CudaError
from weft.runtime.devices.cuda.image import DeviceKernel, KernelObject, TensorMapSpec, choose_image
from weft.runtime.sizes import evaluate
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, WeftError


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """One launch with all of its arguments; ``name`` is what errors call it."""

    function: int
    geometry: Geometry
    parameters: tuple[Parameter, ...]
    name: str


class LoadedKernel:
    """A ``KernelObject`` on a device; its code is loaded when it is first launched."""

    def __init__(self, code: KernelObject, context: DeviceContext) -> None:
        self.code = code
        self._context = context
        self._lock = threading.Lock()
        self._functions: tuple[int, ...] = ()
        self._module = 0

    def launches(self, arguments: Sequence[int]) -> list[PreparedLaunch]:
        """The launches for these arguments: addresses, values of sizes, and the workspace.

        Raises ``CudaError`` for a grid that the device does not have; launches over an empty grid
        are left out.
        """
        code = self.code
        functions = self._functions or self._load()
        sizes: dict[str, int] = {}
        rest = list(arguments)
        workspace = rest.pop() if code.workspace_bytes else 0
        if code.sizes:
            values = rest[len(rest) - len(code.sizes):]
            sizes = dict(zip(code.sizes, values, strict=True))
            del rest[len(rest) - len(code.sizes):]
        maps = [self._tensor_map(spec, rest, sizes) for spec in code.tensor_maps]
        made = []
        for function, kernel in zip(functions, code.launches, strict=True):
            geometry = self._geometry(kernel, sizes)
            if 0 in geometry.grid:
                continue
            parameters = tuple(_parameter(kind, value, rest, workspace, sizes, maps)
                               for kind, value in kernel.arguments)
            name = kernel.entry if kernel.entry == code.symbol else f"{code.symbol}.{kernel.entry}"
            made.append(PreparedLaunch(function, geometry, parameters, name))
        return made

    def _geometry(self, kernel: DeviceKernel, sizes: dict[str, int]) -> Geometry:
        x, y, z = (evaluate(size, sizes) for size in kernel.grid)
        most = self._context.properties.max_grid
        if x > most[0] or y > most[1] or z > most[2]:
            raise CudaError("the grid of a launch is too large", where=self.code.symbol,
                            expected=f"at most {most}", got=str((x, y, z)))
        return Geometry((x, y, z), kernel.block, kernel.cluster, kernel.shared_bytes)

    def _load(self) -> tuple[int, ...]:
        with self._lock:
            if self._functions:
                return self._functions
            context, code = self._context, self.code
            driver = context.driver
            context.activate()
            image = choose_image(code.ptx, code.arch, code.cubins, context.properties,
                                 driver.version(), code.symbol)
            try:
                self._module = driver.load_module(image)
                self._functions = tuple(
                    driver.function(self._module, kernel.entry, kernel.shared_bytes)
                    for kernel in code.launches)
            except WeftError as error:
                raise error.at(code.symbol) from None
            return self._functions

    def _tensor_map(self, spec: TensorMapSpec, addresses: Sequence[int], sizes: dict[str, int]
                    ) -> bytes:
        shape = tuple(evaluate(size, sizes) for size in spec.shape)
        strides = tuple(evaluate(size, sizes) for size in spec.strides)
        described = TensorMap(spec.dtype, shape, strides, spec.box, (1,) * len(shape),
                              swizzle=spec.swizzle, l2_promotion=128)
        return self._context.driver.encode_tensor_map(described, addresses[spec.parameter])


def _parameter(kind: str, value: int | str, addresses: Sequence[int], workspace: int,
               sizes: dict[str, int], maps: Sequence[bytes]) -> Parameter:
    number = evaluate(value, sizes)
    if kind == "parameter":
        return addresses[number]
    if kind == "workspace":
        return workspace + number
    if kind == "size":
        return number
    if kind == "tensor_map":
        return maps[number]
    raise InternalError(f"unknown kind of kernel argument {kind!r}")
