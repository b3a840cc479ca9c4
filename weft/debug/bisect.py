"""Which pass, or which kernel, changes the results of a model."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from weft.codegen import backend_of
from weft.compiler.build.built_kernel import BuiltKernel
from weft.compiler.build.kernels import build_kernels
from weft.compiler.pipeline import run_pipeline
from weft.compiler.program.lowering import try_lower_program
from weft.compiler.program.program import BufferKind, BufferRef, KernelSource, Program
from weft.debug.compare import DEFAULT_BOUND, TensorDifference, difference
from weft.debug.tensors import ModelTensors
from weft.ir import Function, IRModule, Pass, TensorType, TupleType, Type, output_names
from weft.runtime.arena import AlignedBlock
from weft.runtime.devices.cpu.threads import threading_of
from weft.runtime.library import Library
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate


@dataclass(frozen=True, slots=True)
class WrongPass:
    """A pass after which a result differs: its number among the passes that ran, from 0."""

    number: int
    name: str
    difference: TensorDifference
    before: IRModule
    after: IRModule


@dataclass(frozen=True, slots=True)
class WrongKernel:
    """A kernel whose result differs from its definition, for the arguments of this model."""

    step: int
    kernel: KernelSource
    implementation: str
    difference: TensorDifference


@dataclass(eq=False, slots=True)
class _Keep:
    """Keeps the module after each pass that changed it."""

    found: list[tuple[str, IRModule]] = field(default_factory=list)

    def before_pass(self, pass_: Pass, mod: IRModule) -> None:
        """See ``Instrument``."""

    def after_pass(self, pass_: Pass, before: IRModule, after: IRModule, seconds: float) -> None:  # noqa: ARG002
        """See ``Instrument``."""
        if after is not before:
            self.found.append((pass_.name, after))


def first_wrong_pass(model: ModelTensors, *, bound: float = DEFAULT_BOUND) -> WrongPass | None:
    """The first pass whose module gives other results in the reference interpreter.

    The search halves the list of passes, so it assumes that a wrong result stays wrong. ``None`` if
    all passes together keep the results. Raises ``PassError`` for an operator without a reference.
    """
    keep = _Keep()
    run_pipeline(model.module, model.options, instruments=[keep])
    if not keep.found:
        return None
    expected = _results(model, model.module)

    def wrong(number: int) -> TensorDifference | None:
        return _worst(model, _results(model, keep.found[number][1]), expected, bound)

    low, high = 0, len(keep.found) - 1
    found = wrong(high)
    if found is None:
        return None
    while low < high:  # wrong at ``high``
        middle = (low + high) // 2
        there = wrong(middle)
        low, high, found = (low, middle, there) if there is not None else (middle + 1, high, found)
    before = keep.found[high - 1][1] if high else model.module
    return WrongPass(high, keep.found[high][0], wrong(high) or found, before, keep.found[high][1])


def first_wrong_kernel(model: ModelTensors, *, bound: float = DEFAULT_BOUND) -> WrongKernel | None:
    """The first kernel that computes something else than its operators, on the inputs of ``model``.

    Each kernel gets the arguments that the reference interpreter computes, so errors do not add
    up. Raises ``UnsupportedModelError`` for programs with branches, loops or symbolic sizes.
    """
    program = try_lower_program(run_pipeline(model.module, model.options))
    if program is None or program.is_symbolic or any(step.path for step in program.steps):
        raise UnsupportedModelError("kernels are compared in straight programs of fixed sizes")
    target = model.options.target
    built = build_kernels(program.kernels, target, model.options.extensions.tir_passes)
    backend = backend_of(target)
    library = backend.load([*(k.object_code for k in built), *backend.support_objects(target)],
                           target)
    threading_of(library).apply(1)
    values = _first_values(program, model)
    for number, step in enumerate(program.steps):
        kernel = program.kernels[step.kernel]
        split = len(step.buffers) - step.num_outputs
        args = [values[ref] for ref in step.buffers[:split]]
        expected = _flat(evaluate(kernel.function, _arguments(kernel.function, args)))
        got = _run(library, built[step.kernel], args, expected)
        for ref, value, want in zip(step.buffers[split:], got, expected, strict=True):
            apart = difference(kernel.text, value, want)
            if apart.exceeds(bound):
                return WrongKernel(number, kernel, built[step.kernel].facts.implementation, apart)
            values[ref] = want
    return None


def _arguments(function: Function, arrays: list[np.ndarray]) -> list[object]:
    """The arguments of a primitive function, whose tuples are several buffers."""
    rest = iter(arrays)

    def value(type_: Type | None) -> object:
        if isinstance(type_, TupleType):
            return tuple(value(part) for part in type_.fields)
        array = next(rest)
        return array.reshape(type_.concrete_shape) if isinstance(type_, TensorType) else array

    return [value(param.checked_type) for param in function.params]


def _run(library: Library, built: BuiltKernel, args: list[np.ndarray], results: list[np.ndarray]
         ) -> list[np.ndarray]:
    """The results of a kernel for ``args``; ``results`` give their shapes and dtypes."""
    facts = built.facts
    blocks = [_block(value) for value in args]
    outputs = [AlignedBlock(value.nbytes) for value in results]
    if facts.in_place is not None:
        outputs[-1].array[:] = blocks[facts.in_place].array
    memory = [*blocks, *outputs]
    if facts.workspace_bytes:
        memory.append(AlignedBlock(int(facts.workspace_bytes)))
    launch = library.kernel(facts.symbol, len(memory))
    launch(*(block.address for block in memory))
    return [block.array[: value.nbytes].view(value.dtype).reshape(value.shape).copy()
            for block, value in zip(outputs, results, strict=True)]


def _block(value: np.ndarray) -> AlignedBlock:
    block = AlignedBlock(value.nbytes)
    block.array[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    return block


def _first_values(program: Program, model: ModelTensors) -> dict[BufferRef, np.ndarray]:
    inputs = {BufferRef(BufferKind.INPUT, n): model.feeds[port.name]
              for n, port in enumerate(program.inputs)}
    constants = {BufferRef(BufferKind.CONSTANT, n): np.asarray(value)
                 for n, value in enumerate(program.constants)}
    return {**inputs, **constants}


def _results(model: ModelTensors, module: IRModule) -> list[np.ndarray]:
    return _flat(evaluate(module, list(model.feeds.values())))


def _flat(value: object) -> list[np.ndarray]:
    if isinstance(value, tuple):
        return [one for part in value for one in _flat(part)]
    return [np.asarray(value)]


def _worst(model: ModelTensors, got: list[np.ndarray], expected: list[np.ndarray], bound: float
           ) -> TensorDifference | None:
    names = output_names(model.module)
    found = [difference(name, a, b) for name, a, b in zip(names, got, expected, strict=False)]
    wrong = [one for one in found if one.exceeds(bound)]
    return max(wrong, key=lambda one: one.relative, default=None)
