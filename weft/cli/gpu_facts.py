"""What ``weft doctor`` says about GPUs: driver, devices, and the tools that compile for them."""

from __future__ import annotations

import re

from weft.codegen.cuda.toolkit import find_library, find_program, run
from weft.runtime.devices.cuda.context import current_driver
from weft.runtime.devices.cuda.driver import Driver
from weft.runtime.devices.cuda.image import newest_ptx
from weft.support.errors import WeftError

_MISSING = "absent (pip install weft[cuda])"


def gpu_facts() -> dict[str, str]:
    """The driver and the devices, or why there are none, and the versions of the tools."""
    facts = {"cuda driver": "", "ptxas": _ptxas(), "libnvvm": _libnvvm()}
    try:
        driver = current_driver()
        facts["cuda driver"] = _driver(driver)
        for number in range(driver.device_count()):
            facts[f"cuda:{number}"] = _device(driver, number)
    except WeftError as error:
        facts["cuda driver"] = error.what
    return facts


def _driver(driver: Driver) -> str:
    version = driver.version()
    major, minor = newest_ptx(version)
    return (f"{driver.name}, CUDA {version // 1000}.{version % 1000 // 10}, PTX up to "
            f"{major}.{minor}")


def _device(driver: Driver, number: int) -> str:
    found = driver.properties(number)
    major, minor = found.capability
    return (f"{found.name}, sm_{major}{minor}, {found.multiprocessors} multiprocessors, "
            f"{found.total_bytes / (1 << 30):.0f} GiB")


def _ptxas() -> str:
    path = find_program("ptxas")
    if path is None:
        return _MISSING
    try:
        found = re.search(r"V(\d+\.\d+\.\d+)", run([path, "--version"]).stdout)
    except (OSError, WeftError) as error:
        return f"{path} does not run: {error}"
    return f"{found[1] if found else 'unknown version'} ({path})"


def _libnvvm() -> str:
    path = find_library("nvvm")
    return _MISSING if path is None else str(path)
