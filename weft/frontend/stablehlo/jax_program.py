"""Functions of JAX as StableHLO text, by JAX itself."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jax import export
from jax.interpreters import mlir

from weft.frontend.stablehlo.inputs import input_names
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, WeftError


@dataclass(frozen=True, slots=True)
class JaxText:
    """The text of a module, and the symbolic sizes of its inputs, which the text lacks."""

    text: str
    sizes: tuple[tuple[str, ...], ...] = ()


def text_of(model: Any, examples: Any, shapes: Mapping[str, Sequence[object] | None]) -> JaxText:
    """The module of an exported, lowered or traceable function.

    ``examples`` are its arguments, positional or by name; ``shapes`` makes sizes of them symbolic,
    by the names of inputs.
    """
    if isinstance(model, export.Exported):
        return _exported(model)
    if hasattr(model, "as_text") and hasattr(model, "compiler_ir"):
        return JaxText(model.as_text(debug_info=True))
    args, kwargs = ((), dict(examples)) if isinstance(examples, Mapping) else (tuple(examples), {})
    try:
        lowered = _lower(model, args, kwargs).as_text(debug_info=True)
        if any(shape is not None and any(isinstance(size, str) for size in shape)
               for shape in shapes.values()):
            return _with_symbols(model, args, kwargs, shapes, input_names(lowered))
        return JaxText(lowered)
    except WeftError:
        raise
    except Exception as error:
        raise InvalidModelError(
            "JAX cannot trace the function for these example inputs",
            got=f"{type(error).__name__}: {str(error)[:1500]}",
            help="arguments that are no arrays belong into a closure or functools.partial"
        ) from error


def _lower(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """The lowered function with an input for every argument, those that it ignores included."""
    try:
        return jax.jit(_plain(function), keep_unused=True).lower(*args, **kwargs)
    except Exception:
        if not hasattr(function, "lower"):
            raise
    return function.lower(*args, **kwargs)  # static arguments


def _plain(function: Any) -> Any:
    """A function for a callable object, whose arrays become constants: models of libraries."""
    if inspect.isfunction(function) or hasattr(function, "lower"):
        return function

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    with contextlib.suppress(TypeError, ValueError):  # names of the inputs
        called.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
    return called


def _exported(exported: Any) -> JaxText:
    kept = exported.module_kept_var_idx
    sizes = tuple(tuple(str(size) for size in exported.in_avals[n].shape) for n in kept)
    return JaxText(exported.mlir_module(), sizes)


def _with_symbols(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any],
                  shapes: Mapping[str, Sequence[object] | None], names: Sequence[str]) -> JaxText:
    """The function exported with symbolic sizes for the inputs that ``shapes`` names."""
    unknown = sorted(set(shapes) - set(names))
    if unknown:
        raise InvalidModelError(f"the function has no input {unknown[0]!r}",
                                expected=", ".join(names))
    scope = export.SymbolicScope()
    leaves, tree = jax.tree.flatten((args, dict(kwargs)))
    specs = []
    for name, leaf in zip(names, leaves, strict=True):
        shape = shapes.get(name)
        plain: Any = jax.numpy.shape(leaf) if shape is None else export.symbolic_shape(
            ", ".join(map(str, shape)), scope=scope)
        specs.append(jax.ShapeDtypeStruct(plain, jax.numpy.result_type(leaf)))
    positional, named = jax.tree.unflatten(tree, specs)
    jitted = jax.jit(_plain(function), keep_unused=True)
    return _exported(export.export(jitted)(*positional, **named))


def text_of_bytecode(data: bytes) -> str:
    """The text of a module in MLIR's bytecode, also of a portable artifact."""
    with mlir.make_ir_context() as context:
        from jaxlib.mlir import ir
        from jaxlib.mlir.dialects import stablehlo

        try:
            module = stablehlo.deserialize_portable_artifact(context, data) \
                if b"StableHLO" in data[:64] else ir.Module.parse(data)
            return str(module.operation.get_asm(enable_debug_info=True))
        except Exception as error:
            raise InvalidModelError("jaxlib cannot read the bytecode",
                                    got=f"{type(error).__name__}: {str(error)[:500]}") from error
