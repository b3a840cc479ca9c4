"""The description of a compiled module, apart from its code and weights: plain data, saved as JSON.

A manifest names the inputs and outputs, the machine that the code needs, the layout of the
constants, the size of the arenas, and every kernel call in order, with the jumps of loops. On CPUs
the generated ``weft_main`` makes the calls, and profiling and printing alone read the list; other
back ends may have the runtime make them (``launched_by``). A program with closures or recursion has
bytecode for the virtual machine instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, fields
from typing import Any

import numpy as np

from weft.runtime.calls import (
    ARGUMENT_KINDS,
    Argument,
    BackJump,
    Condition,
    KernelCall,
    SizeTest,
    VariantSpec,
)
from weft.runtime.device import HOST, Device
from weft.runtime.devices.cpu.thread_pool import MAX_THREADS
from weft.runtime.devices.sim.description import SimDevice
from weft.runtime.dtypes import numpy_dtype
from weft.runtime.json_fields import as_int, as_size, as_text
from weft.runtime.sizes import Size, SymbolSpec, is_entry_name, names_in, parsed
from weft.runtime.vm.plain import from_plain, to_plain
from weft.runtime.vm.program import VmProgram
from weft.support.dataclass import dataclass
from weft.support.errors import ArtifactError, OptionError
from weft.support.fallback import Fallback

FORMAT_VERSION = 3
MAIN_SYMBOL = "weft_main"


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a module; a size that is a name is a symbolic dimension."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape; ``ArtifactError`` if it has a symbolic dimension."""
        sizes = tuple(size for size in self.shape if isinstance(size, int))
        if len(sizes) < len(self.shape):
            raise ArtifactError(f"{self.name!r} has a symbolic dimension", got=str(self))
        return sizes

    @property
    def numpy_dtype(self) -> np.dtype:
        return numpy_dtype(self.dtype)

    @property
    def nbytes(self) -> int:
        return math.prod(self.concrete_shape) * self.numpy_dtype.itemsize

    def __str__(self) -> str:
        return f"{self.name}: Tensor[{self.shape}, {self.dtype}]"


@dataclass(frozen=True, slots=True)
class CountSpec:
    """A symbol that data determines: call ``at`` writes it to element ``which`` of ``counts``,
    an int64 tensor. It is at most ``bound``, a size over the symbols of the inputs.
    """

    name: str
    at: int
    counts: Argument
    which: int
    bound: Size


@dataclass(frozen=True, slots=True)
class ConstantSpec:
    """A constant: its byte offset in the block of constants, dtype and shape."""

    offset: int
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * numpy_dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class ArenaSpec:
    """An arena beside the host's: its memory space, size and alignment in bytes, and device.

    Its slots have the offsets of ``Manifest.sizes``, as those of the host's arena.
    """

    space: str
    nbytes: Size
    device: Device
    alignment: int = 64


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """The machine that the code was generated for.

    ``triple`` and ``features`` are those of the host's CPU, in LLVM's spelling. ``cpu`` is its
    name, or the text of the target for another ``kind``.
    """

    triple: str
    cpu: str
    features: tuple[str, ...] = ()
    kind: str = "cpu"

    @property
    def arch(self) -> str:
        return self.triple.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Manifest:
    """``checksums`` are SHA-256 digests of an artifact's other members, by name.

    ``vm`` is the bytecode of a program for the virtual machine, otherwise ``None``.
    ``launched_by`` is the name of what launches the kernels (``weft.runtime.launchers``).
    ``arena_bytes`` is the size of the arena in host
    memory, ``arenas`` are the others. ``threads`` is the number of threads that calls use;
    ``None``: the number that is set for the process.

    ``symbols`` are the symbolic sizes of a program that runs at all sizes, and ``sizes`` what
    follows from them: each entry is a size over the symbols and over earlier entries, which are
    named ``_0``, ``_1``, ... in it. Shapes, work and memory may then be sizes, too. ``states`` are
    tensors of fixed shape that the module keeps from call to call; their first values are zeros,
    or are at the offsets ``initial`` in the block of constants. Calls for which one of
    ``nonnegative`` is negative are refused: an input is smaller than a window. ``counts`` are sizes
    that data determines, ordered by call: entries of ``sizes`` and shapes of outputs over them are
    known after the call. The program writes them to one more output, an int64 tensor. ``devices``
    are the simulated devices that a program was made for, ``fallbacks`` the changes of plan of its
    compilation.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    target: TargetSpec
    arena_bytes: Size
    constants_bytes: int
    steps: tuple[KernelCall, ...] = ()
    jumps: tuple[BackJump, ...] = ()
    constants: tuple[ConstantSpec, ...] = ()
    output_is_tuple: bool = False
    weft_version: str = ""
    format_version: int = FORMAT_VERSION
    checksums: Mapping[str, str] = field(default_factory=dict)
    vm: VmProgram | None = None
    threads: int | None = None
    launched_by: str = MAIN_SYMBOL
    arenas: tuple[ArenaSpec, ...] = ()
    symbols: tuple[SymbolSpec, ...] = ()
    sizes: tuple[Size, ...] = ()
    states: tuple[TensorSpec, ...] = ()
    initial: tuple[int, ...] = ()
    nonnegative: tuple[Size, ...] = ()
    counts: tuple[CountSpec, ...] = ()
    devices: tuple[SimDevice, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()

    def to_json(self, indent: int | None = 1) -> str:
        """Equal manifests give equal text; optional fields are left out at their default."""
        text = json.dumps(_fields_of(self), indent=indent, sort_keys=True, default=_fields_of)
        if self.vm is None:
            return text
        program = json.dumps(to_plain(self.vm), sort_keys=True)  # long, so on one line
        return f'{text[:-1].rstrip()},\n "vm": {program}\n}}'

    @staticmethod
    def from_json(text: str | bytes) -> Manifest:
        """Read and check a manifest; ``ArtifactError`` for anything else."""
        try:
            plain = json.loads(text)
            version = plain["format_version"]
            if version == FORMAT_VERSION:
                manifest = _manifest(plain)
                check_manifest(manifest)
                return manifest
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ArtifactError("a damaged manifest", got=f"{type(error).__name__}: {error}") \
                from None
        raise ArtifactError(
            "the artifact has another format", expected=f"version {FORMAT_VERSION}", got=version,
            help="export it again with this version of weft, or install the version that wrote it",
        )

    def signature(self) -> str:
        """``(x: Tensor[(1, 3), float32]) -> (y: Tensor[(1, 5), float32])``."""
        given = ", ".join(map(str, self.inputs))
        return f"({given}) -> ({', '.join(map(str, self.outputs))})"


def check_manifest(manifest: Manifest) -> None:
    """Raise ``ArtifactError`` for negative sizes and for arguments beyond the inputs and arenas.

    The names of the arenas must differ from each other and from ``ARGUMENT_KINDS``.
    """
    arena = manifest.arena_bytes if isinstance(manifest.arena_bytes, int) else 0
    sizes = (arena, manifest.constants_bytes)
    if min(sizes) < 0 or max(sizes) >= 1 << 48:
        raise _damaged("sizes of arena and constants", sizes)
    _check_symbols(manifest)
    kinds = (*ARGUMENT_KINDS, *(arena.space for arena in manifest.arenas))
    if len(set(kinds)) < len(kinds):
        raise _damaged("names of arenas", ", ".join(arena.space for arena in manifest.arenas))
    _check_arguments(manifest, {
        "input": len(manifest.inputs), "output": len(manifest.outputs),
        "const": manifest.constants_bytes + 1, "arena": arena + 1,
        "slot": len(manifest.sizes), "size": len(manifest.sizes), "state": len(manifest.states),
        **{arena.space: arena.nbytes + 1 if isinstance(arena.nbytes, int) else 0
           for arena in manifest.arenas}})
    _check_devices(manifest)
    if manifest.vm is not None:
        _check_symbolic(manifest.vm)
    _check_tensors(manifest)
    if manifest.threads is not None and not 1 <= manifest.threads <= MAX_THREADS:
        raise _damaged("threads", manifest.threads, expected=f"1 to {MAX_THREADS}")


def _damaged(where: str, got: object = None, expected: str | None = None) -> ArtifactError:
    return ArtifactError("a damaged manifest", where=where, got=got, expected=expected)


def _check_arguments(manifest: Manifest, limits: Mapping[str, int]) -> None:
    """Raise ``ArtifactError`` for arguments, counts and jumps beyond the limits of their kinds."""
    for step in manifest.steps:
        variants = (argument for variant in step.variants for argument in variant.args)
        for kind, value in (*step.args, *(condition for condition, _ in step.guards), *variants):
            if not 0 <= value < limits.get(kind, 0):
                raise _damaged(f"arguments of {step.symbol}", f"{kind} {value}")
    for count in manifest.counts:
        kind, value = count.counts
        if not 0 <= value < limits.get(kind, 0) or not 0 <= count.at < len(manifest.steps) \
                or manifest.steps[count.at].guards or count.which < 0:
            raise _damaged(f"size {count.name}", count)
    for jump in manifest.jumps:
        inside = all(0 <= value < limits[kind] for (kind, value), _ in jump.guards)
        if not (inside and 0 <= jump.to <= jump.at <= len(manifest.steps)):
            raise _damaged("jumps", jump)


def _check_tensors(manifest: Manifest) -> None:
    """Raise ``ArtifactError`` for constants and states outside the memory of constants."""
    for constant in manifest.constants:
        if constant.offset < 0 or constant.offset + constant.nbytes > manifest.constants_bytes:
            raise _damaged("constants", constant)
    for tensor in (*manifest.inputs, *manifest.outputs, *manifest.states):
        numpy_dtype(tensor.dtype)
    if len(manifest.initial) not in (0, len(manifest.states)) or any(
            offset < 0 or offset + state.nbytes > manifest.constants_bytes
            for state, offset in zip(manifest.states, manifest.initial, strict=False)):
        raise _damaged("initial", manifest.initial)
    if any(not isinstance(size, int) for state in manifest.states for size in state.shape):
        raise _damaged("states", manifest.states)


def _check_symbolic(program: VmProgram) -> None:
    """Raise ``ArtifactError`` for kernels that are described as anything but one call."""
    for form in program.symbolic:
        inner = Manifest.from_json(form.text)
        if len(inner.steps) != 1 or inner.vm is not None \
                or len(inner.inputs) != program.kernels[form.number].num_inputs:
            raise _damaged(f"kernel {form.number}")


def _check_devices(manifest: Manifest) -> None:
    """Raise ``ArtifactError`` for calls that wait for later ones, and for unknown devices."""
    known = {HOST, *(one.device for one in manifest.devices)}
    for at, step in enumerate(manifest.steps):
        if any(before >= at for before in step.waits):
            raise _damaged(f"waits of {step.symbol}", step.waits)
        if manifest.devices and not {step.device, step.source} <= known:
            raise _damaged(f"device of {step.symbol}", step.device)


def _check_symbols(manifest: Manifest) -> None:
    """Raise ``ArtifactError`` for sizes over unknown symbols, and symbols without an input."""
    known = {symbol.name for symbol in manifest.symbols}
    if len(known) < len(manifest.symbols) or any(map(is_entry_name, known)):
        raise _damaged("names of symbols", manifest.symbols)
    for symbol in manifest.symbols:
        inputs = manifest.inputs[symbol.input : symbol.input + 1]
        if not inputs or not 0 <= symbol.axis < len(inputs[0].shape) or symbol.scale < 1 \
                or symbol.multiple < 1 or symbol.low < 0:
            raise _damaged(f"symbol {symbol.name}", symbol)
    for count in manifest.counts:
        if count.name in known or is_entry_name(count.name):
            raise _damaged("names of symbols", count)
        _check_names(count.name, count.bound, {symbol.name for symbol in manifest.symbols})
        known.add(count.name)
    if manifest.vm is None:
        for number, size in enumerate(manifest.sizes):
            earlier = {f"_{n}" for n in range(number)}
            _check_names("sizes", size, known | earlier)
        entries = {f"_{n}" for n in range(len(manifest.sizes))}
        for nbytes in (manifest.arena_bytes, *(arena.nbytes for arena in manifest.arenas)):
            _check_names("sizes of arena and constants", nbytes, known | entries)
    if manifest.symbols or manifest.counts:
        for tensor in (*manifest.inputs, *manifest.outputs):
            for size in tensor.shape:
                _check_names(tensor.name, size, known)
        for size in manifest.nonnegative:
            _check_names("nonnegative", size, known)
        for step in manifest.steps:
            _check_names(step.symbol, step.flops, known)
            _check_names(step.symbol, step.bytes_moved, known)
    if any(not 0 <= test.size < len(manifest.sizes) or test.multiple < 1
           for step in manifest.steps for variant in step.variants for test in variant.tests):
        raise _damaged("variants of kernels")


def _check_names(where: str, size: Size, known: AbstractSet[str]) -> None:
    unknown = names_in(size) - known
    if unknown:
        raise _damaged(where, ", ".join(sorted(unknown)))


# Fields that the text omits if they have these values, by class.
_DEFAULTS: dict[type, Mapping[str, Any]] = {
    Manifest: {"threads": None, "launched_by": MAIN_SYMBOL, "arenas": (), "symbols": (),
               "sizes": (), "states": (), "initial": (), "nonnegative": (), "counts": (),
               "devices": (), "fallbacks": ()},
    TargetSpec: {"kind": "cpu"},
    KernelCall: {"device": HOST, "stream": 0, "variants": (), "seconds": 0.0, "source": HOST,
                 "waits": (), "spent": ""},
}


def _fields_of(record: Any) -> dict[str, Any]:
    """The fields of a record, for ``json.dumps``, which asks for those of the records in it."""
    plain = {one.name: getattr(record, one.name) for one in fields(record)}
    if type(record) is Manifest:
        del plain["vm"]
    for name, default in _DEFAULTS.get(type(record), {}).items():
        if plain[name] == default:
            del plain[name]
    return plain


def _manifest(plain: Mapping[str, Any]) -> Manifest:
    target = plain["target"]
    spaces = tuple(as_text(arena["space"]) for arena in plain.get("arenas", ()))
    return Manifest(
        inputs=tuple(_tensor(t) for t in plain["inputs"]),
        outputs=tuple(_tensor(t) for t in plain["outputs"]),
        target=TargetSpec(as_text(target["triple"]), as_text(target["cpu"]),
                          tuple(as_text(name) for name in target["features"]),
                          as_text(target.get("kind", "cpu"))),
        arena_bytes=_size(plain["arena_bytes"]),
        constants_bytes=as_size(plain["constants_bytes"]),
        steps=tuple(_step(s, spaces) for s in plain["steps"]),
        jumps=tuple(BackJump(as_size(j["at"]), as_size(j["to"]), _conditions(j["guards"], spaces))
                    for j in plain.get("jumps", ())),
        constants=tuple(ConstantSpec(as_size(c["offset"]), as_text(c["dtype"]),
                                     tuple(map(as_size, c["shape"]))) for c in plain["constants"]),
        output_is_tuple=bool(plain["output_is_tuple"]),
        weft_version=as_text(plain["weft_version"]),
        checksums={as_text(k): as_text(v) for k, v in plain["checksums"].items()},
        vm=from_plain(plain["vm"], len(plain["constants"])) if "vm" in plain else None,
        threads=as_size(plain["threads"]) if "threads" in plain else None,
        launched_by=as_text(plain.get("launched_by", MAIN_SYMBOL)),
        arenas=tuple(ArenaSpec(as_text(a["space"]), _size(a["nbytes"]), _device(a["device"]),
                               as_size(a["alignment"])) for a in plain.get("arenas", ())),
        symbols=tuple(SymbolSpec(as_text(s["name"]), **_wholes(s, "name"))
                      for s in plain.get("symbols", ())),
        sizes=tuple(map(_size, plain.get("sizes", ()))),
        states=tuple(map(_tensor, plain.get("states", ()))),
        initial=tuple(map(as_size, plain.get("initial", ()))),
        nonnegative=tuple(map(_size, plain.get("nonnegative", ()))),
        counts=tuple(_count(count, spaces) for count in plain.get("counts", ())),
        devices=tuple(_sim_device(one) for one in plain.get("devices", ())),
        fallbacks=tuple(map(_fallback, plain.get("fallbacks", ()))),
    )


def _fallback(plain: Mapping[str, Any]) -> Fallback:
    return Fallback(as_text(plain["what"]), as_text(plain["cause"]), as_text(plain["cost"]),
                    as_text(plain["cure"]), listed_only=bool(plain["listed_only"]))


def _tensor(plain: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(s if isinstance(s, str) else as_size(s) for s in plain["shape"])
    return TensorSpec(as_text(plain["name"]), as_text(plain["dtype"]), shape)


def _count(plain: Mapping[str, Any], spaces: Sequence[str]) -> CountSpec:
    ((counts, _),) = _conditions([(plain["counts"], True)], spaces)
    return CountSpec(as_text(plain["name"]), as_size(plain["at"]), counts, as_size(plain["which"]),
                     _size(plain["bound"]))


def _step(plain: Mapping[str, Any], spaces: Sequence[str]) -> KernelCall:
    args = tuple((_kind(kind, spaces), as_size(value)) for kind, value in plain["args"])
    return KernelCall(as_text(plain["symbol"]), args, as_text(plain["implementation"]),
                      as_text(plain["op"]), _size(plain["flops"]), _size(plain["bytes_moved"]),
                      _conditions(plain.get("guards", ()), spaces),
                      _device(plain["device"]) if "device" in plain else HOST,
                      as_size(plain.get("stream", 0)),
                      tuple(_variant(v, spaces) for v in plain.get("variants", ())),
                      _seconds(plain.get("seconds", 0.0)),
                      _device(plain["source"]) if "source" in plain else HOST,
                      tuple(map(as_size, plain.get("waits", ()))), as_text(plain.get("spent", "")))


def _variant(plain: Mapping[str, Any], spaces: Sequence[str]) -> VariantSpec:
    args = tuple((_kind(kind, spaces), as_size(value)) for kind, value in plain["args"])
    tests = tuple(SizeTest(**_wholes(test)) for test in plain["tests"])
    return VariantSpec(as_text(plain["kernel"]), args, tests, as_text(plain["implementation"]),
                       _seconds(plain["seconds"]))


def _seconds(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise TypeError(f"{value!r} is not a time")
    return float(value)


def _wholes(plain: Mapping[str, Any], *others: str) -> dict[str, Any]:
    """The fields of a record that are whole numbers, or ``None`` for an end that is open."""
    return {key: None if key == "high" and value is None else as_int(value)
            for key, value in plain.items() if key not in others}


def _sim_device(plain: Mapping[str, Any]) -> SimDevice:
    try:
        return SimDevice(**plain)
    except OptionError as error:
        raise ValueError(str(error)) from None


def _device(plain: Mapping[str, Any]) -> Device:
    return Device(as_text(plain["kind"]), as_size(plain["number"]))


def _conditions(plain: Iterable[Any], spaces: Sequence[str]) -> tuple[Condition, ...]:
    return tuple(((_kind(kind, spaces), as_size(value)), bool(expected))
                 for (kind, value), expected in plain)


def _kind(value: object, spaces: Sequence[str]) -> str:
    if value not in ARGUMENT_KINDS and value not in spaces:
        raise ValueError(f"unknown kind of argument {value!r}")
    return str(value)


def _size(value: object) -> Size:
    """A whole number, or a text over symbols, which is checked."""
    if isinstance(value, str):
        parsed(value)
        return value
    return as_size(value)
