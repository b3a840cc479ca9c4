"""Whether this machine has an NVIDIA GPU, and what to compile for it."""

from __future__ import annotations

import functools

import weft
from weft.runtime.devices.cuda.context import context_of
from weft.target.cuda_target import ARCHS


@functools.cache
def missing() -> str:
    """Why there is no GPU; empty if there is one."""
    try:
        with weft.config(cuda="driver"):
            context_of(0)
    except weft.WeftError as error:
        return error.what
    return ""


def target() -> str:
    """The target of the device, with the instructions that it alone has."""
    with weft.config(cuda="driver"):
        capability = context_of(0).properties.capability
    fitting = [name for name, arch in ARCHS.items()
               if arch.capability == capability or (arch.capability < capability
                                                    and not name.endswith("a"))]
    return f"cuda -arch={max(fitting, key=lambda name: (ARCHS[name].capability, name))}"
