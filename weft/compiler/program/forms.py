"""The form of a model's code: which kind of program it becomes, and why.

The preferred form is one program: of fixed sizes, or for all values of its symbolic sizes. A model
of dynamic shapes that cannot have one is compiled for each set of input shapes, and a program that
is not first-order runs on the virtual machine.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import weft
from weft.codegen import backend_of
from weft.compiler.options import CompileOptions
from weft.compiler.program.lowering import unsupported_type
from weft.compiler.program.ports import input_ports, output_ports, spec_of
from weft.compiler.program.program import Port
from weft.compiler.program.symbols import undetermined_size
from weft.frontend.source import Source
from weft.ir import IRModule, TupleType, is_static
from weft.ir.types import is_flat
from weft.runtime.manifest import Manifest
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError, WeftError
from weft.transform import counts_data
from weft.transform.analysis.graph import type_of


class FormKind(enum.Enum):
    """What a model becomes; the values are for messages."""

    FIXED = "a program of fixed sizes"
    SYMBOLIC = "a program for all sizes"
    PER_SHAPE = "a program for each set of input shapes"
    VIRTUAL_MACHINE = "a program of the virtual machine"


@dataclass(frozen=True, slots=True)
class Form:
    """``reason`` says why the model has this form; ``cause`` is what a preferred form lacks."""

    kind: FormKind
    reason: str
    cause: WeftError | None = None

    @staticmethod
    def instead(kind: FormKind, cause: WeftError) -> Form:
        """The form of a model that ``cause`` keeps from a preferred one."""
        return Form(kind, cause.what, cause)


def choose_form(mod: IRModule, options: CompileOptions) -> Form:
    """The form of an imported module, by its types and the options.

    Whether the program is first-order shows when it is lowered (``program.build``).
    """
    if not has_dynamic_inputs(mod):
        if options.data_sizes and counts_data(mod):
            return Form(FormKind.SYMBOLIC, "data determines sizes")
        return Form(FormKind.FIXED, "the types of the inputs give all sizes")
    cause = next(_obstacles(mod, options), None)
    if cause is not None:
        return Form.instead(FormKind.PER_SHAPE, cause)
    return Form(FormKind.SYMBOLIC, "the inputs determine all sizes")


def _obstacles(mod: IRModule, options: CompileOptions) -> Iterator[UnsupportedModelError]:
    """Why a module with dynamic inputs has no program for all sizes."""
    if not options.symbolic_sizes:
        yield UnsupportedModelError("WEFT_SYMBOLIC_SIZES=0 asks for programs of fixed sizes")
    if not backend_of(options.target).takes_sizes:
        yield UnsupportedModelError(f"kernels of {options.target.kind} targets need fixed sizes")
    if options.codegens:
        yield UnsupportedModelError("external code generators take regions of fixed sizes")
    main = mod["main"]
    yield from filter(None, (unsupported_type(type_of(param)) for param in main.params))
    yield from filter(None, [undetermined_size(input_ports(mod, main))])


def has_dynamic_inputs(mod: IRModule) -> bool:
    """Whether a parameter of ``main`` has a symbolic dimension."""
    return not all(is_static(type_of(p)) for p in mod["main"].params)


def manifest_of_module(mod: IRModule, options: CompileOptions) -> Manifest:
    """The signature of ``main``; without outputs if the result is not a tuple of tensors."""
    main = mod["main"]
    result = type_of(main.body)
    outputs = output_ports(mod, result) if is_flat(result) else ()
    return _manifest(input_ports(mod, main), outputs, options,
                     output_is_tuple=isinstance(result, TupleType))


def manifest_of_source(source: Source, options: CompileOptions) -> Manifest | None:
    """The declared signature of a model; ``None`` if its sizes are fixed, or not known so far."""
    declared = source.signature(options)
    if declared is None:
        return None
    inputs, outputs = ([Port(name, type_) for name, type_ in ports] for ports in declared)
    return _manifest(inputs, outputs, options, output_is_tuple=len(outputs) != 1)


def _manifest(inputs: Sequence[Port], outputs: Sequence[Port], options: CompileOptions, *,
              output_is_tuple: bool) -> Manifest:
    target = options.target
    return Manifest(
        inputs=tuple(map(spec_of, inputs)), outputs=tuple(map(spec_of, outputs)),
        target=backend_of(target).target_spec(target), arena_bytes=0, constants_bytes=0,
        output_is_tuple=output_is_tuple, weft_version=weft.__version__,
    )
