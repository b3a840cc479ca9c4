"""The inputs and outputs of a module: names, types, symbolic sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.frontend.stablehlo.locations import Places
from weft.frontend.stablehlo.parser import parse_module
from weft.frontend.stablehlo.syntax import HloFunction, HloModule, Parameter
from weft.frontend.stablehlo.types import dtype_of
from weft.ir.shape import KnownDim, as_shape
from weft.ir.span import Span
from weft.ir.types import TensorType
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.support.names import claim
from weft.support.suggestion import nearest


def input_ports(
    module: HloModule, places: Places, shapes: Mapping[str, Sequence[object] | None],
    sizes: Sequence[Sequence[str]],
) -> list[tuple[str, TensorType, Span]]:
    """The names, types and places of the inputs; ``shapes`` replace unknown sizes."""
    main = module.functions["main"]
    ports: list[tuple[str, TensorType, Span]] = []
    names = _names(module, places)
    for position, (name, parameter) in enumerate(zip(names, main.parameters, strict=True)):
        told = sizes[position] if position < len(sizes) else None
        type_ = _type_of(parameter, name, told, shapes.get(name))
        ports.append((name, type_, Span("<stablehlo>", node=name)))
    unknown = sorted(shapes.keys() - set(names))
    if unknown:
        close = nearest(unknown[0], names)
        raise InvalidModelError(f"the module has no input {unknown[0]!r}",
                                expected=", ".join(names),
                                help=f"is {close[0]!r} meant?" if close else None)
    return ports


def input_names(text: str) -> tuple[str, ...]:
    """The names of the inputs of a module."""
    module = parse_module(text)
    return _names(module, Places(module, text, "<stablehlo>"))


def _names(module: HloModule, places: Places) -> tuple[str, ...]:
    """The names that JAX gave to the inputs, else those of the text.

    In an exported module ``main`` checks the sizes and calls the function with the names.
    """
    main = module.functions["main"]
    known = [places.name(p.location) for p in main.parameters]
    count = len(main.parameters)
    calls = [o for o in main.body.operations if o.name == "func.call"]
    if count and not any(known) and len(calls) == 1 and calls[0].operands[-count:] == tuple(
            p.name for p in main.parameters):
        called = module.functions.get(calls[0].target)
        known = [places.name(p.location) for p in called.parameters[-count:]] if called else known
    taken: set[str] = set()
    return tuple(claim(name or parameter.name[1:], taken)
                 for name, parameter in zip(known, main.parameters, strict=True))


def _type_of(parameter: Parameter, name: str, told: Sequence[str] | None,
             given: Sequence[object] | None) -> TensorType:
    dtype = dtype_of(parameter.type)
    if dtype is None:
        raise UnsupportedModelError(f"the input {name!r} has a type that weft lacks",
                                    got=str(parameter.type))
    known = parameter.type.shape
    names = tuple(told or (f"{name}_dim{axis}" for axis in range(len(known))))
    wanted = names if given is None else tuple(given)
    if len(wanted) != len(known):
        raise InvalidModelError(f"the shape of the input {name!r} has the wrong length",
                                expected=str(parameter.type), got=str(wanted))
    sizes: list[KnownDim] = []
    for axis, (size, want) in enumerate(zip(known, wanted, strict=True)):
        if size is None:
            sizes.append(as_shape((want,))[0])  # type: ignore[arg-type]
            continue
        if given is not None and as_shape((want,))[0] != size:
            raise UnsupportedModelError(
                f"axis {axis} of the input {name!r} has a fixed size", expected=str(size),
                got=str(want), help="export the function with jax.export.symbolic_shape")
        sizes.append(size)
    return TensorType(tuple(sizes), dtype)


def output_names_of(main: HloFunction) -> tuple[str, ...]:
    """The names of the results: where they stand in what the function of JAX returns."""
    names: list[str] = []
    taken: set[str] = set()
    for position, attributes in enumerate(main.result_attributes):
        told = str(attributes.get("jax.result_info", "") or "")
        default = "output" if len(main.result_types) == 1 else f"output{position}"
        names.append(claim(told or default, taken))
    return tuple(names)
