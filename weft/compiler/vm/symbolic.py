"""Kernels with unknown sizes, compiled once for all sizes that their types permit.

An unknown size becomes a symbol. Where an operator needs equal sizes (the inner ones of a matrix
product), equal symbols are tried: the forms of a kernel are those with the fewest equal sizes. Each
is described by a manifest of its own, as a program with one call.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import weft
from weft.codegen import backend_of
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.build.kernel_set import kernel_source
from weft.compiler.build.kernels import build_kernels
from weft.compiler.fallbacks import permits_another_plan
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode
from weft.compiler.program.ports import spec_of, tensors_of
from weft.compiler.program.program import KernelSource, Port, Program, Step
from weft.compiler.program.symbols import sizes_to_check, symbol_specs
from weft.compiler.vm.specialize import parsed_kernel, with_shapes
from weft.ir import (
    AnyDim,
    Dim,
    Function,
    SymDim,
    TensorType,
    name_of,
    range_of,
    size_of_dim,
    structural_hash,
)
from weft.ir.dynamic import bounds_of, needs_values, result_types
from weft.ir.shape import Shape
from weft.runtime.manifest import KernelCall, Manifest
from weft.runtime.sizes import evaluate
from weft.runtime.vm.program import SymbolicKernel, VmKernel
from weft.support.errors import TypeInferenceError, WeftError
from weft.transform.analysis.graph import type_of

# With more unknown sizes, all differ or the kernel has no symbolic form: partitions are many.
_MAX_UNKNOWN = 5
_MAX_FORMS = 3
# Larger than windows, and not the product or quotient of others.
_PROBE = 1009


def with_symbolic_kernels(code: ModelCode, options: CompileOptions
                          ) -> tuple[ModelCode, tuple[VmKernel, ...]]:
    """``code`` with the symbolic forms of its dynamic kernels, and the kernels that have none."""
    program = code.manifest.vm
    if program is None:
        return code, ()
    forms: list[SymbolicKernel] = []
    objects: dict[str, bytes] = {}
    missing = []
    for number, kernel in enumerate(program.kernels):
        found = _symbolic_kernels(number, kernel, options) if kernel.is_dynamic else None
        if found is None:
            continue
        if not found:
            missing.append(kernel)
        for form, symbol, made in found:
            forms.append(form)
            objects[symbol] = made
    manifest = replace(code.manifest, vm=replace(program, symbolic=tuple(forms)))
    return replace(code, manifest=manifest, objects=(*objects.values(), *code.objects)), \
        tuple(missing)


def _symbolic_kernels(number: int, kernel: VmKernel, options: CompileOptions
                      ) -> list[tuple[SymbolicKernel, str, bytes]]:
    """The forms of kernel ``number`` for all sizes, with object code; none if it has none."""
    function = parsed_kernel(kernel)
    if needs_values(function):
        return []
    made = []
    for form in _typed_forms(function):
        try:
            made.append(_built(number, form, options))
        except WeftError as error:
            if not permits_another_plan(error):
                raise
            continue  # no strategy of the operator takes symbols
        if len(made) == _MAX_FORMS:
            break
    return made


def _typed_forms(function: Function) -> Iterator[Function]:
    """The function with symbols for unknown sizes; the fewest sizes are equal."""
    shapes = [t.shape for t in _inputs(function)]
    unknown = [(n, axis) for n, shape in enumerate(shapes) for axis, dim in enumerate(shape)
               if isinstance(dim, AnyDim)]
    taken = {name for shape in shapes for dim in shape if isinstance(dim, SymDim)
             for name in dim.symbols()}
    symbols = [SymDim.symbol(name) for n in range(len(unknown) + len(taken))
               if (name := f"n{n}") not in taken]
    partitions = _partitions(len(unknown)) if len(unknown) <= _MAX_UNKNOWN \
        else [tuple(range(len(unknown)))]
    found: list[tuple[int, ...]] = []
    for labels in partitions:
        if any(_is_coarser(labels, other) for other in found):
            continue
        sizes = dict(zip(unknown, (symbols[label] for label in labels), strict=True))
        try:
            form = with_shapes(function, [_filled(n, s, sizes) for n, s in enumerate(shapes)])
        except TypeInferenceError:  # an operator needs more sizes to be equal
            continue
        if _is_sound(function, form):
            found.append(labels)
            yield form


def _is_sound(function: Function, form: Function) -> bool:
    """Whether the types of ``form`` are right at numbers, different ones and ones.

    Some type relations take symbols as equal, or as sizes other than 1.
    """
    types = [*_inputs(form), *result_types(form)]
    if any(isinstance(dim, AnyDim) for type_ in types for dim in type_.shape):
        return False
    texts = sorted({text for type_ in types for dim in type_.shape if isinstance(dim, SymDim)
                    for text in dim.symbols()})
    for least in (_PROBE, 1):
        sizes = {name_of(text): range_of(text).nearest(least + n * (least > 1))
                 for n, text in enumerate(texts)}
        shapes = [tuple(evaluate(size_of_dim(dim), sizes) for dim in type_.shape)
                  for type_ in types]
        try:
            fixed = with_shapes(function, shapes[: len(_inputs(form))])
        except TypeInferenceError:
            if least > 1:
                return False
            continue  # a window that does not fit; calls check such sizes
        if [t.shape for t in result_types(fixed)] != shapes[len(_inputs(form)):]:
            return False
    return True


def _filled(number: int, shape: Shape, sizes: dict[tuple[int, int], SymDim]) -> tuple[Dim, ...]:
    return tuple(sizes.get((number, axis), dim) for axis, dim in enumerate(shape))


def _partitions(count: int) -> list[tuple[int, ...]]:
    """All ways to label ``count`` sizes, equal ones alike; those with most labels first."""
    found: list[tuple[int, ...]] = [()]
    for _ in range(count):
        found = [(*labels, label) for labels in found
                 for label in range(max(labels, default=-1) + 2)]
    return sorted(found, key=lambda labels: -len(set(labels)))


def _is_coarser(labels: Sequence[int], other: Sequence[int]) -> bool:
    """Whether sizes that are equal in ``other`` are equal in ``labels``."""
    return len(set(zip(labels, other, strict=True))) == len(set(other))


def _built(number: int, function: Function, options: CompileOptions
           ) -> tuple[SymbolicKernel, str, bytes]:
    source = kernel_source(function, structural_hash(function))
    target = options.target
    with options.settings():
        built = build_kernels([source], target, options.extensions.tir_passes)[0]
    bounds = bounds_of(function)
    manifest = _manifest(source, built.facts, options)
    counted = () if bounds is None else bounds.counted
    return SymbolicKernel(number, manifest.to_json(), counted), built.facts.symbol, \
        built.object_code


def _manifest(source: KernelSource, facts: KernelFacts, options: CompileOptions) -> Manifest:
    function = source.function
    inputs = _ports("input", _inputs(function))
    outputs = _ports("output", result_types(function))
    program = Program(inputs, outputs, True, (), (), (source,), (Step(0, (), 0),))
    call = KernelCall(facts.symbol, (), facts.implementation, source.text, facts.flops,
                      facts.bytes_moved)
    return Manifest(
        tuple(map(spec_of, inputs)), tuple(map(spec_of, outputs)),
        backend_of(options.target).target_spec(options.target), facts.workspace_bytes, 0,
        steps=(call,), output_is_tuple=True, weft_version=weft.__version__,
        symbols=symbol_specs(inputs), sizes=facts.sizes, nonnegative=sizes_to_check(program))


def _ports(name: str, types: Sequence[TensorType]) -> tuple[Port, ...]:
    return tuple(Port(f"{name}{n}", t) for n, t in enumerate(types))


def _inputs(function: Function) -> list[TensorType]:
    return [*chain.from_iterable(tensors_of(type_of(p)) for p in function.params)]
