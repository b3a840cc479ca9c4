"""Which code of a kernel a device can run: assembled for it, or PTX that its driver compiles."""

from __future__ import annotations

import re
from collections.abc import Mapping

from weft.runtime.devices.cuda.driver import DeviceProperties
from weft.runtime.devices.cuda.errors import NoDeviceError

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
    if not device.any_arch and not _runs_ptx(arch, device.capability):
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


def _runs_ptx(arch: str, capability: tuple[int, int]) -> bool:
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
