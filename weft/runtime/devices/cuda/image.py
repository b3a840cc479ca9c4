"""``KernelObject``: what a CUDA kernel of a program consists of, and its bytes.

One loop program becomes one PTX module with one ``__global__`` function per launch. The bytes are a
magic word, then JSON with sorted keys; equal objects give equal bytes.

A device runs the code that was assembled for it, or PTX that its driver compiles.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from weft.runtime.devices.cuda.driver import DeviceProperties
from weft.runtime.devices.cuda.errors import NoDeviceError
from weft.runtime.json_fields import as_text
from weft.runtime.sizes import Size, names_in
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError

MAGIC = b"weft-cuda-1\n"

# What the launcher passes for a parameter of a ``__global__`` function:
#   ("parameter", i)    the address of parameter i of the loop program
#   ("workspace", n)    the address of the workspace plus n bytes (an integer or the text of a size)
#   ("size", text)      an int64: the value of a size over the symbols of the kernel
#   ("tensor_map", i)   the 128 bytes of tensor map i
Argument: TypeAlias = "tuple[str, int | str]"
ARGUMENT_KINDS = ("parameter", "workspace", "size", "tensor_map")
Grid: TypeAlias = "tuple[Size, Size, Size]"


@dataclass(frozen=True, slots=True)
class TensorMapSpec:
    """A tensor map of the tensor memory accelerator (``cuTensorMapEncodeTiled``).

    ``parameter`` is the index of the parameter that it describes. ``shape`` in elements and
    ``strides`` in bytes (all but the innermost) list the innermost dimension first, as ``box``, the
    elements of one copy, does. ``swizzle`` is in bytes: 0, 32, 64 or 128.
    """

    parameter: int
    dtype: str
    shape: tuple[Size, ...]
    strides: tuple[Size, ...]
    box: tuple[int, ...]
    swizzle: int = 0


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """One ``__global__`` function and its launch.

    ``grid`` and ``cluster`` count blocks, ``block`` counts threads, x first. ``shared_bytes`` is
    dynamic shared memory.
    """

    entry: str
    grid: Grid
    block: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class KernelObject:
    """One loop program: its launches in order, on one stream.

    ``cubins`` hold assembled code by architecture, and may be empty: the driver compiles ``ptx``.
    The launcher gets the addresses of the parameters, the workspace and the values of ``sizes``.
    """

    symbol: str
    arch: str
    ptx: str
    launches: tuple[DeviceKernel, ...]
    cubins: Mapping[str, bytes] = field(default_factory=dict)
    tensor_maps: tuple[TensorMapSpec, ...] = ()
    workspace_bytes: Size = 0
    sizes: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The object as bytes, which ``from_bytes`` reads."""
        return MAGIC + json.dumps(_plain(self), sort_keys=True, ensure_ascii=False,
                                  separators=(",", ":")).encode()

    @staticmethod
    def from_bytes(data: bytes) -> KernelObject:
        """The object that ``to_bytes`` wrote; ``ArtifactError`` for other bytes."""
        if not data.startswith(MAGIC):
            raise ArtifactError("not a CUDA kernel object", expected=MAGIC.decode().strip(),
                                got=repr(bytes(data[:len(MAGIC)])))
        try:
            return _object(json.loads(bytes(data[len(MAGIC):])))
        except (ValueError, KeyError, TypeError) as error:
            raise ArtifactError("a damaged CUDA kernel object", got=error) from None


def _plain(image: KernelObject) -> dict[str, Any]:
    return {
        "symbol": image.symbol, "arch": image.arch, "ptx": image.ptx,
        "launches": [{"entry": k.entry, "grid": k.grid, "block": k.block, "cluster": k.cluster,
                      "shared_bytes": k.shared_bytes, "arguments": k.arguments}
                     for k in image.launches],
        "cubins": {arch: base64.b64encode(code).decode() for arch, code in image.cubins.items()},
        "tensor_maps": [{"parameter": m.parameter, "dtype": m.dtype, "shape": m.shape,
                         "strides": m.strides, "box": m.box, "swizzle": m.swizzle}
                        for m in image.tensor_maps],
        "workspace_bytes": image.workspace_bytes, "sizes": image.sizes,
    }


def _object(data: dict[str, Any]) -> KernelObject:
    return KernelObject(
        symbol=as_text(data["symbol"]), arch=as_text(data["arch"]), ptx=as_text(data["ptx"]),
        launches=tuple(map(_kernel, data["launches"])),
        cubins={arch: base64.b64decode(code) for arch, code in data["cubins"].items()},
        tensor_maps=tuple(map(_tensor_map, data["tensor_maps"])),
        workspace_bytes=_size(data["workspace_bytes"]), sizes=tuple(map(as_text, data["sizes"])),
    )


def _kernel(data: dict[str, Any]) -> DeviceKernel:
    x, y, z = map(_size, data["grid"])
    return DeviceKernel(as_text(data["entry"]), (x, y, z), _triple(data["block"]),
                        tuple(map(_argument, data["arguments"])), int(data["shared_bytes"]),
                        _triple(data["cluster"]))


def _tensor_map(data: dict[str, Any]) -> TensorMapSpec:
    return TensorMapSpec(int(data["parameter"]), as_text(data["dtype"]),
                         tuple(map(_size, data["shape"])), tuple(map(_size, data["strides"])),
                         tuple(map(int, data["box"])), int(data["swizzle"]))


def _argument(data: Any) -> Argument:
    kind, value = data
    if kind not in ARGUMENT_KINDS:
        raise ValueError(f"unknown kind of kernel argument: {kind!r}")
    return kind, _size(value)


def _triple(data: Any) -> tuple[int, int, int]:
    x, y, z = map(int, data)
    return x, y, z


def _size(value: Any) -> Size:
    """An integer, or a text of ``weft.runtime.sizes``, which ``names_in`` checks."""
    if isinstance(value, str):
        names_in(value)
    elif not isinstance(value, int):
        raise TypeError(f"not a size: {value!r}")
    return value


# The newest PTX version of each CUDA version ("Release Notes", PTX ISA), newest first.
_PTX_OF_CUDA = (
    (13010, (9, 1)), (13000, (9, 0)), (12090, (8, 8)), (12080, (8, 7)), (12070, (8, 6)),
    (12050, (8, 5)), (12040, (8, 4)), (12030, (8, 3)), (12020, (8, 2)), (12010, (8, 1)),
    (12000, (8, 0)), (11080, (7, 8)),
)
_ARCH = re.compile(r"sm_(\d+)(\d)([af]?)")
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)


def newest_ptx(driver_version: int) -> tuple[int, int]:
    """The newest PTX version that a driver of this CUDA version compiles."""
    return next((ptx for cuda, ptx in _PTX_OF_CUDA if driver_version >= cuda), (7, 0))


def ptx_version(ptx: str) -> tuple[int, int]:
    """The version that a PTX text states; (0, 0) if it states none."""
    found = _VERSION.search(ptx)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def choose_image(ptx: str, arch: str, cubins: Mapping[str, bytes], device: DeviceProperties,
                 driver_version: int, where: str) -> bytes:
    """The code to load: a cubin for the device, otherwise the PTX, which was made for ``arch``.

    Raises ``NoDeviceError`` if the device cannot run any of it, and if the driver is too old for
    the PTX.
    """
    fitting = [name for name in cubins if _runs_cubin(name, device.capability)]
    if fitting and not device.any_arch:
        return cubins[max(fitting, key=_specific)]
    if not ptx:
        raise _wrong_arch(", ".join(sorted(cubins)), device, where)
    if not device.any_arch and not runs_ptx(arch, device.capability):
        raise _wrong_arch(", ".join(sorted({arch, *cubins})), device, where)
    newest, wanted = newest_ptx(driver_version), ptx_version(ptx)
    if wanted > newest:
        raise NoDeviceError(
            "the CUDA driver is older than the code", where=where,
            expected=f"a driver that compiles PTX {wanted[0]}.{wanted[1]}",
            got=f"CUDA {driver_version // 1000}.{driver_version % 1000 // 10}, which compiles PTX "
                f"up to {newest[0]}.{newest[1]}",
            help="install a newer NVIDIA driver, or export with cubins for the device")
    return ptx.encode() + b"\0"


def _runs_cubin(arch: str, capability: tuple[int, int]) -> bool:
    """A cubin runs on later minor versions of its major version, unless it is specific."""
    found = _ARCH.fullmatch(arch)
    if found is None:
        return False
    made = (int(found[1]), int(found[2]))
    if found[3] == "a":
        return made == capability
    return made[0] == capability[0] and made[1] <= capability[1]


def runs_ptx(arch: str, capability: tuple[int, int]) -> bool:
    """PTX runs on all later devices, unless it is specific to its architecture."""
    found = _ARCH.fullmatch(arch)
    if found is None:
        return False
    made = (int(found[1]), int(found[2]))
    return made == capability if found[3] == "a" else made <= capability


def _specific(arch: str) -> tuple[int, bool]:
    found = _ARCH.fullmatch(arch)
    return (int(found[1] + found[2]), bool(found[3])) if found else (0, False)


def _wrong_arch(made_for: str, device: DeviceProperties, where: str) -> NoDeviceError:
    major, minor = device.capability
    return NoDeviceError("the device cannot run the code", where=where,
                         expected=f"a device of {made_for}",
                         got=f"{device.name}, which is sm_{major}{minor}",
                         help=f'compile with target="cuda -arch=sm_{major}{minor}"')
