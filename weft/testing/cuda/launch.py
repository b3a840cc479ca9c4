"""Launching kernels: checks, parameters, module variables, batches of blocks."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from weft.support.dataclass import dataclass
from weft.testing.cuda.batch import WARP, Batch
from weft.testing.cuda.compiled import LaunchShape, Program
from weft.testing.cuda.counters import Counters, LaunchCounts
from weft.testing.cuda.device_memory import DeviceMemory, Region
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.program import compile_entry
from weft.testing.cuda.ptx.module import PtxModule
from weft.testing.cuda.ptx.parser import parse
from weft.testing.cuda.scheduler import Scheduler

_LANES_PER_BATCH = 1 << 15
_SHARED_PER_BATCH = 1 << 28
_GRID_LIMITS = (2**31 - 1, 65535, 65535)
_BLOCK_LIMITS = (1024, 1024, 64)
_MAX_THREADS = 1024
_STATIC_SHARED_LIMIT = 48 << 10
_SHARED_LIMIT = 227 << 10


@dataclass(frozen=True, slots=True)
class EmulationOptions:
    """How a launch is emulated.

    ``seed`` shuffles the order of blocks and of atomics. ``instruction_budget`` bounds the
    instructions of one batch of blocks, which run in lock-step.
    """

    seed: int = 0
    check_races: bool = True
    count: bool = False
    instruction_budget: int = 200_000_000


@functools.lru_cache(maxsize=512)
def load_ptx(text: str) -> PtxModule:
    """The module of a PTX text. Raises CudaEmulationError with the line that does not parse."""
    return parse(text)


@functools.lru_cache(maxsize=512)
def _program_of(text: str, entry: str) -> Program:
    return compile_entry(load_ptx(text), entry)


def program_of(module: PtxModule, entry: str) -> Program:
    """The compiled kernel, kept per text."""
    return _program_of(module.text, entry)


def launch(
    module: PtxModule,
    entry: str,
    grid: Sequence[int],
    block: Sequence[int],
    params: Sequence[int | bytes],
    memory: DeviceMemory,
    *,
    shared_bytes: int = 0,
    cluster: Sequence[int] = (1, 1, 1),
    options: EmulationOptions = EmulationOptions(),
) -> LaunchCounts | None:
    """Run a kernel on ``memory``; with ``options.count``, what it did.

    ``params`` are integers (the bits of a scalar, or an address) or the bytes of an array
    parameter. Raises CudaEmulationError for launches that a driver would refuse and for kernels
    that misbehave: see the package.
    """
    program = program_of(module, entry)
    shape = LaunchShape(_three(grid), _three(block), _three(cluster), shared_bytes)
    _check(program, shape)
    parameters = _parameters(program, params)
    symbols = _module_variables(module, memory)
    random = np.random.default_rng(options.seed)
    counters = Counters(program, shape) if options.count else None
    try:
        for blocks in _batches(program, shape, random):
            batch = Batch(program, shape, blocks, memory, parameters, symbols, random,
                          options.check_races, counters)
            Scheduler(batch, options.instruction_budget).run()
    finally:
        for region in memory.regions():
            region.shadow = None
    return counters.result() if counters is not None else None


def _three(sizes: Sequence[int]) -> tuple[int, int, int]:
    padded = (*sizes, 1, 1, 1)[:3]
    return int(padded[0]), int(padded[1]), int(padded[2])


def _check(program: Program, shape: LaunchShape) -> None:
    name = program.function.name
    for what, sizes, limits in (("grid", shape.grid, _GRID_LIMITS),
                                ("block", shape.block, _BLOCK_LIMITS)):
        if any(not 1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
            raise CudaEmulationError(f"invalid {what} of a launch", where=name,
                                     expected=f"sizes from 1 to {limits}", got=str(sizes))
    if shape.threads > _MAX_THREADS:
        raise CudaEmulationError("too many threads in a block", where=name,
                                 expected=f"at most {_MAX_THREADS}", got=str(shape.threads))
    _check_directives(program, shape)
    if any(g % c for g, c in zip(shape.grid, shape.cluster, strict=True)):
        raise CudaEmulationError("the cluster does not divide the grid", where=name,
                                 expected=f"multiples of {shape.cluster}", got=str(shape.grid))
    total = program.static_shared_bytes + shape.dynamic_shared_bytes
    if program.static_shared_bytes > _STATIC_SHARED_LIMIT or total > _SHARED_LIMIT:
        raise CudaEmulationError(
            "too much shared memory", where=name,
            expected=f"at most {_STATIC_SHARED_LIMIT} bytes static, {_SHARED_LIMIT} in all",
            got=f"{program.static_shared_bytes} static and {shape.dynamic_shared_bytes} dynamic")


def _check_directives(program: Program, shape: LaunchShape) -> None:
    directives, name = program.function.directives, program.function.name
    for word, exact in (("maxntid", False), ("reqntid", True)):
        values = directives.get(word)
        if not values:
            continue
        if exact and _three(values) != shape.block:
            raise CudaEmulationError("the block differs from .reqntid", where=name,
                                     expected=str(_three(values)), got=str(shape.block))
        if shape.threads > math.prod(values):
            raise CudaEmulationError(f"the block exceeds .{word}", where=name,
                                     expected=f"at most {math.prod(values)} threads",
                                     got=str(shape.threads))


def _parameters(program: Program, params: Sequence[int | bytes]) -> Region:
    declared = program.function.parameters
    if len(params) != len(declared):
        raise CudaEmulationError("wrong number of kernel arguments", where=program.function.name,
                                 expected=str(len(declared)), got=str(len(params)))
    region = Region("kernel parameters", max(program.function.parameter_bytes, 16), read_only=True)
    for parameter, value in zip(declared, params, strict=True):
        if isinstance(value, bytes):
            data = value
        else:
            mask = (1 << 8 * parameter.nbytes) - 1
            data = (int(value) & mask).to_bytes(parameter.nbytes, "little")
        if len(data) != parameter.nbytes:
            raise CudaEmulationError(f"argument {parameter.name} has the wrong size",
                                     where=program.function.name,
                                     expected=f"{parameter.nbytes} bytes", got=f"{len(data)}")
        start = parameter.offset
        region.data[start : start + len(data)] = np.frombuffer(data, dtype=np.uint8)
    return region


def _module_variables(module: PtxModule, memory: DeviceMemory) -> dict[str, int]:
    """Addresses of the module's global and constant variables, placed at its first launch."""
    known = memory.module_variables.get(id(module))
    if known is not None:
        return known
    addresses: dict[str, int] = {}
    for variable in module.variables.values():
        if variable.space in {"global", "const"} and not variable.external:
            address = memory.allocate(variable.nbytes, max(variable.alignment, 1))
            data = memory.view(address, variable.nbytes)
            data[:] = 0
            data[: len(variable.initial)] = np.frombuffer(variable.initial, dtype=np.uint8)
            addresses[variable.name] = address
            region = memory.find(address)
            if region is not None and variable.space == "const":
                region.read_only = True
    memory.module_variables[id(module)] = addresses
    memory.modules.append(module)  # keeps the identity
    return addresses


def _batches(
    program: Program, shape: LaunchShape, random: np.random.Generator
) -> list[np.ndarray]:
    """The blocks in shuffled order, clusters together, in batches."""
    grid, cluster = shape.grid, shape.cluster
    size = cluster[0] * cluster[1] * cluster[2]
    clusters = [g // c for g, c in zip(grid, cluster, strict=True)]
    order = random.permutation(math.prod(clusters))
    x, y = order % clusters[0], order // clusters[0] % clusters[1]
    z = order // (clusters[0] * clusters[1])
    blocks = []
    for rank in range(size):
        bx = x * cluster[0] + rank % cluster[0]
        by = y * cluster[1] + rank // cluster[0] % cluster[1]
        bz = z * cluster[2] + rank // (cluster[0] * cluster[1])
        blocks.append(bx + grid[0] * (by + grid[1] * bz))
    numbers = np.stack(blocks, axis=1).ravel().astype(np.int64)
    slots = -(-shape.threads // WARP) * WARP
    per_block = program.static_shared_bytes + shape.dynamic_shared_bytes + 1
    count = max(1, min(_LANES_PER_BATCH // slots, _SHARED_PER_BATCH // per_block) // size) * size
    return [numbers[start : start + count] for start in range(0, len(numbers), count)]
