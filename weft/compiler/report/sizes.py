"""Programs for all sizes in reports: symbols, variants of kernels, work at typical sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.ir.symbol import SizeRange
from weft.runtime.manifest import KernelCall, Manifest, TensorSpec, VariantSpec
from weft.runtime.sizes import evaluate


def typical_sizes(manifest: Manifest) -> dict[str, int]:
    """The sizes that the compiler's decisions assume, by symbol."""
    return {s.name: SizeRange(s.low, s.high, s.multiple).typical for s in manifest.symbols}


def at_sizes(sizes: Mapping[str, int]) -> str:
    """``" at batch=64, seq=64"``; empty without symbols."""
    return " at " + ", ".join(f"{name}={size}" for name, size in sizes.items()) if sizes else ""


def typical_shape(spec: TensorSpec, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of an input at these sizes of the symbols."""
    return tuple(evaluate(size, sizes) for size in spec.shape)


def arena_bytes_at(manifest: Manifest, sizes: Mapping[str, int]) -> int:
    """The size of the arena at these sizes."""
    known = dict(sizes)
    if isinstance(manifest.arena_bytes, str):
        for number, size in enumerate(manifest.sizes):
            known[f"_{number}"] = evaluate(size, known)
    return evaluate(manifest.arena_bytes, known)


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
    return rows


def kernel_rows(manifest: Manifest, calls: Sequence[KernelCall]
                ) -> list[tuple[str, str, str, str, str]]:
    """Number, operators, sizes, implementation and MFLOP (at typical sizes) of kernels.

    Below a kernel are its variants, in the order in which their ranges are compared with a size.
    """
    sizes = typical_sizes(manifest)
    rows = []
    for number, call in enumerate(calls):
        flops = evaluate(call.flops, sizes) / 1e6
        rows.append((str(number), call.op, "all" if call.variants or manifest.symbols else "",
                     call.implementation, f"{flops:.3f}"))
        rows += [("", "", _sizes_of(manifest, variant), variant.implementation, "")
                 for variant in call.variants]
    return rows


def _sizes_of(manifest: Manifest, variant: VariantSpec) -> str:
    name = manifest.symbols[variant.symbol].name
    return f"{name}: {range_words(variant.low, variant.high, variant.multiple)}"
