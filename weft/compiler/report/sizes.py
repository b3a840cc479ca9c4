"""Programs for all sizes in reports: symbols, variants of kernels, work at typical sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from weft.ir import DType, SizeRange
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST
from weft.runtime.launchers import launcher_of
from weft.runtime.manifest import KernelCall, Manifest, TensorSpec, VariantSpec
from weft.runtime.sizes import evaluate

# The column of estimated times.
ESTIMATE = "us (estimated)"


def typical_sizes(manifest: Manifest) -> dict[str, int]:
    """The sizes that the compiler's decisions assume, by symbol."""
    sizes = {s.name: SizeRange(s.low, s.high, s.multiple).typical for s in manifest.symbols}
    for count in manifest.counts:
        sizes[count.name] = SizeRange(0, evaluate(count.bound, sizes)).typical
    return sizes


def at_sizes(sizes: Mapping[str, int]) -> str:
    """``" at batch=64, seq=64"``; empty without symbols."""
    return " at " + ", ".join(f"{name}={size}" for name, size in sizes.items()) if sizes else ""


def typical_shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input at these sizes of the symbols."""
    return tuple(evaluate(size, sizes) for size in spec.shape)


def arena_bytes_at(manifest: Manifest, sizes: Mapping[str, int]) -> int:
    """The size of all arenas at these sizes."""
    known = dict(sizes)
    arenas = (manifest.arena_bytes, *(arena.nbytes for arena in manifest.arenas))
    if any(isinstance(nbytes, str) for nbytes in arenas):
        for number, size in enumerate(manifest.sizes):
            known[f"_{number}"] = evaluate(size, known)
    return sum(evaluate(nbytes, known) for nbytes in arenas)


def memory_text(manifest: Manifest, sizes: Mapping[str, int]) -> str:
    """The largest memory of a call at these sizes, and what it consists of."""
    known = dict(sizes)
    parts = {"arena": arena_bytes_at(manifest, sizes), "constants": manifest.constants_bytes,
             "inputs": _bytes(manifest.inputs, known), "outputs": _bytes(manifest.outputs, known)}
    listed = ", ".join(f"{name} {size / 1e6:.2f}" for name, size in parts.items())
    return f"peak memory of a call {sum(parts.values()) / 1e6:.2f} MB: {listed}"


def _bytes(specs: Sequence[TensorSpec], sizes: Mapping[str, int]) -> int:
    return sum(math.prod(typical_shape(s, sizes)) * DType.of(s.dtype).itemsize for s in specs)


def range_words(low: int, high: int | None, multiple: int = 1) -> str:
    """``"1"``, ``"2 to 16"``, ``"8 or more, a multiple of 8"``."""
    words = str(low) if low == high else f"{low} or more" if high is None else f"{low} to {high}"
    return words + (f", a multiple of {multiple}" if multiple > 1 else "")


def symbol_rows(manifest: Manifest) -> list[tuple[str, str, str]]:
    """For each symbol its name, its sizes, and the axis that determines it."""
    rows = []
    for s in manifest.symbols:
        spec = manifest.inputs[s.input]
        rows.append((s.name, range_words(s.low, s.high, s.multiple),
                     f"axis {s.axis} of {spec.name}: {spec.shape[s.axis]}"))
    rows += [(count.name, f"at most {count.bound}", f"counted by {manifest.steps[count.at].op}")
             for count in manifest.counts]
    return rows


def kernel_rows(manifest: Manifest, calls: Sequence[KernelCall]
                ) -> list[tuple[str, str, str, str, str, str]]:
    """Number, operators, sizes, implementation, MFLOP (at typical sizes) and estimate of kernels.

    Below a kernel are its variants, in the order in which sizes are compared with their ranges.
    The estimate is that of the decision, in microseconds at the typical sizes of a row.
    """
    sizes = typical_sizes(manifest)
    rows = []
    for number, call in enumerate(calls):
        flops = evaluate(call.flops, sizes) / 1e6
        rows.append((str(number), call.op, "all" if call.variants or manifest.symbols else "",
                     _implementation(manifest, call, sizes), f"{flops:.3f}",
                     _microseconds(call.seconds)))
        rows += [("", "", _sizes_of(manifest, variant), variant.implementation, "",
                  _microseconds(variant.seconds)) for variant in call.variants]
    return rows


def _implementation(manifest: Manifest, call: KernelCall, sizes: Mapping[str, int]) -> str:
    """The implementation of a call; beside a device, also where it runs, and what it copies."""
    if call.symbol == DEVICE_COPY:
        return f"{evaluate(call.bytes_moved, sizes)} bytes from {call.source} to {call.device}"
    beside = call.device == HOST and launcher_of(manifest).copies_between_memories
    return f"{call.implementation} (on the host)" if beside else call.implementation


def placement_text(manifest: Manifest, sizes: Mapping[str, int]) -> str:
    """How many calls run on the device and on the host, and what is copied between them."""
    copies = [call for call in manifest.steps if call.symbol == DEVICE_COPY]
    on_host = sum(call.device == HOST for call in manifest.steps if call.symbol != DEVICE_COPY)
    moved = sum(evaluate(call.bytes_moved, sizes) for call in copies)
    return (f"{len(manifest.steps) - len(copies) - on_host} kernels on the device, {on_host} on "
            f"the host, {len(copies)} copies of {moved} bytes between them")


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}" if seconds else ""


def _sizes_of(manifest: Manifest, variant: VariantSpec) -> str:
    return ", ".join(f"{manifest.sizes[test.size]}: "
                     f"{range_words(test.low, test.high, test.multiple)}" for test in variant.tests)
