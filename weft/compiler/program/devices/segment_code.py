"""The code of the segments of a program on several devices: a function for each."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from weft.codegen.backend import Backend
from weft.codegen.launch import Launch, LaunchProgram
from weft.runtime.devices.sim.segments import blocks_of, is_copy
from weft.runtime.manifest import Argument, Manifest, VariantSpec
from weft.target import Target


def segment_object(backend: Backend[Target], launches: LaunchProgram, manifest: Manifest,
                   target: Target) -> bytes:
    """Object code of the segments of ``manifest``, whose calls are ``launches``.

    A segment is called with the arena and the constants of its device.
    """
    spaces = {arena.space for arena in manifest.arenas}
    segments = {}
    for block in blocks_of(manifest.steps, manifest.jumps):
        for segment in block.segments:
            if not is_copy(manifest.steps[segment.calls[0]]):
                own = [_local(launches.launches[at], spaces) for at in segment.calls]
                segments[segment.symbol] = _program(launches, own)
    return backend.build_segments(segments, target)


def _program(whole: LaunchProgram, launches: Sequence[Launch]) -> LaunchProgram:
    return dataclasses.replace(whole, launches=tuple(launches), jumps=(), counts=())


def _local(launch: Launch, spaces: Collection[str]) -> Launch:
    """The launch with the arena of its device, and without the branches around its block."""
    variants = tuple(_local_variant(variant, spaces) for variant in launch.variants)
    return dataclasses.replace(launch, args=_renamed(launch.args, spaces), path=(),
                               variants=variants)


def _local_variant(variant: VariantSpec, spaces: Collection[str]) -> VariantSpec:
    return dataclasses.replace(variant, args=_renamed(variant.args, spaces))


def _renamed(args: Sequence[Argument], spaces: Collection[str]) -> tuple[Argument, ...]:
    return tuple(("arena" if kind in spaces else kind, value) for kind, value in args)
