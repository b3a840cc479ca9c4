"""Where the buffers of a program lie by its manifest: on the host, on a device, or on both."""

from __future__ import annotations

from weft.runtime.calls import DEVICE_COPY, Argument, KernelCall
from weft.runtime.device import HOST
from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Uses:
    """The numbers of inputs, outputs and states, and offsets of constants, that steps use there."""

    inputs: frozenset[int]
    outputs: frozenset[int]
    states: frozenset[int]
    constants: frozenset[int]


def uses_on(manifest: Manifest, *, host: bool) -> Uses:
    """What the steps on the host, or those on the device, read and write."""
    found: dict[str, set[int]] = {"input": set(), "output": set(), "state": set(), "const": set()}
    for step in manifest.steps:
        for (kind, number), on_host in arguments_of(step):
            if on_host is host and kind in found:
                found[kind].add(number)
        if host:
            for (kind, number), _ in step.guards:
                if kind in found:
                    found[kind].add(number)
    return Uses(*(frozenset(found[kind]) for kind in ("input", "output", "state", "const")))


def arguments_of(step: KernelCall) -> list[tuple[Argument, bool]]:
    """The arguments of a step and of its variants, each with whether it lies on the host."""
    if step.symbol == DEVICE_COPY:
        source, target = step.args
        return [(source, step.source == HOST), (target, step.device == HOST)]
    on_host = step.device == HOST
    variants = (argument for variant in step.variants for argument in variant.args)
    return [(argument, on_host) for argument in (*step.args, *variants)]
