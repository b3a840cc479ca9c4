"""``KernelObject``: what a CUDA kernel of a program consists of, and its bytes.

One loop program becomes one PTX module with one ``__global__`` function per launch. The bytes are a
magic word, then JSON with sorted keys; equal objects give equal bytes.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

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
        symbol=_text(data["symbol"]), arch=_text(data["arch"]), ptx=_text(data["ptx"]),
        launches=tuple(map(_kernel, data["launches"])),
        cubins={arch: base64.b64decode(code) for arch, code in data["cubins"].items()},
        tensor_maps=tuple(map(_tensor_map, data["tensor_maps"])),
        workspace_bytes=_size(data["workspace_bytes"]), sizes=tuple(map(_text, data["sizes"])),
    )


def _kernel(data: dict[str, Any]) -> DeviceKernel:
    x, y, z = map(_size, data["grid"])
    return DeviceKernel(_text(data["entry"]), (x, y, z), _triple(data["block"]),
                        tuple(map(_argument, data["arguments"])), int(data["shared_bytes"]),
                        _triple(data["cluster"]))


def _tensor_map(data: dict[str, Any]) -> TensorMapSpec:
    return TensorMapSpec(int(data["parameter"]), _text(data["dtype"]),
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


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    return value
