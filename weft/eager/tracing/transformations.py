"""``weft.grad`` and the other transformations, which also take plain functions of tensors.

A program (an ONNX file, an ``IRModule``, ..) gives a program, as ``weft.compiler.transformations``
says. A Python function of tensors with ``example_inputs`` is traced and gives a program, too;
without them it gives a function of tensors, which traces and compiles at its first call with
arguments of some shapes and dtypes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler.api import compile as compile_module
from weft.compiler.transformations import batching, forward, gradients, jacobians
from weft.eager.dtypes import as_dtype
from weft.eager.node import value_node
from weft.eager.record import wrap
from weft.eager.tracing.calls import Signature
from weft.eager.tracing.jit import Jitted, argument_array
from weft.eager.tracing.traced_module import module_for
from weft.ir.module import IRModule
from weft.ir.types import FuncType, TupleType, Type
from weft.support.errors import OptionError

# A transformation of the compiler, on a module.
Transform = Callable[..., IRModule]


def grad(model: Any, argnums: Any = None, **options: Any) -> Any:
    """The gradients of a scalar program, or of a Python function of tensors (JAX's ``grad``).

    ``weft.grad(f)(x, y)`` for a function gives the gradient by ``x``; ``argnums`` chooses others.
    For programs and ``options`` see ``weft.compiler.transformations.gradients.grad``.
    """
    return _apply(gradients.grad, model, (_first(model, argnums, options),), options)


def value_and_grad(model: Any, argnums: Any = None, **options: Any) -> Any:
    """The value and the gradients, ``(value, gradients)``; the arguments are those of ``grad``."""
    return _apply(gradients.value_and_grad, model, (_first(model, argnums, options),), options)


def vjp(model: Any, argnums: Any = None, **options: Any) -> IRModule:
    """The vector-Jacobian product: ``(parameters.., cotangent) -> (result, gradients)``.

    A Python function of tensors needs ``example_inputs``.
    """
    return _needs_examples(gradients.vjp, model, argnums, options)


def jvp(model: Any, argnums: Any = None, **options: Any) -> IRModule:
    """The Jacobian-vector product: ``(parameters.., tangents..) -> (result, tangent)``.

    A Python function of tensors needs ``example_inputs``.
    """
    return _needs_examples(forward.jvp, model, argnums, options)


def jacobian(model: Any, argnums: Any = None, **options: Any) -> Any:
    """All first derivatives of a program, or of a Python function of tensors."""
    return _apply(jacobians.jacobian, model, (_first(model, argnums, options),), options)


def hessian(model: Any, argnums: Any = None, **options: Any) -> Any:
    """All second derivatives of a scalar program, or of a Python function of tensors."""
    return _apply(jacobians.hessian, model, (_first(model, argnums, options),), options)


def vmap(model: Any, in_axes: Any = 0, out_axes: Any = 0, axis_size: Any = None,
         **options: Any) -> Any:
    """A program, or a Python function of tensors, for a batch of examples (JAX's ``vmap``)."""
    return _apply(batching.vmap, model, (in_axes, out_axes, axis_size), options)


def is_function(model: Any) -> bool:
    """Whether ``model`` is a Python function of tensors, rather than a program."""
    return isinstance(model, (Jitted, Transformed, functools.partial)) or inspect.isfunction(
        model) or inspect.ismethod(model)


def _first(model: Any, argnums: Any, options: Mapping[str, Any]) -> Any:
    """A function is differentiated by its first argument, as in JAX."""
    named = options.get("with_respect_to")
    return 0 if argnums is None and not named and is_function(model) else argnums


def _apply(transform: Transform, model: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if not is_function(model):
        return transform(model, *args, **options)
    examples = options.pop("example_inputs", None)
    if examples is None:
        return Transformed(model, transform, args, options)
    return transform(_traced(model, examples), *args, **options)


def _needs_examples(transform: Transform, model: Any, argnums: Any, options: dict[str, Any]
                    ) -> IRModule:
    if is_function(model) and options.get("example_inputs") is None:
        raise OptionError(f"{transform.__name__} of a Python function needs example_inputs",
                          help="give tensors of the shapes of its arguments")
    return _apply(transform, model, (argnums,), options)


def _traced(function: Any, examples: Any) -> IRModule:
    given = tuple(examples) if isinstance(examples, Sequence) else (examples,)
    return Transformed.program_of(function, given)


class Transformed:
    """A transformed function of tensors."""

    def __init__(self, function: Any, transform: Transform, args: tuple[Any, ...],
                 options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._transform = transform
        self._args = args
        self._options = options
        self._signature = Signature(function, (), ())
        self._compiled: dict[Any, tuple[Any, Type]] = {}

    def __call__(self, *args: Any) -> Any:
        bound = self._signature.bind(args, {})
        found = self._compiled.get(bound.key)
        if found is None:
            module = self.module(*args)
            type_ = module["main"].checked_type
            assert isinstance(type_, FuncType)
            found = self._compiled[bound.key] = compile_module(module), type_.ret_type
        run, type_ = found
        results = run(*[argument_array(node) for node in bound.dynamic])
        leaves = iter(results if isinstance(results, tuple) else (results,))
        return _tensors(type_, leaves)

    def module(self, *args: Any) -> IRModule:
        """The transformed program for arguments like these."""
        examples = args if self._transform is not batching.vmap else tuple([
            _example(a, axis) for a, axis in zip(args, _axes(self._args[0], len(args)),
                                                 strict=True)])
        return self._transform(self.program_of(self._function, examples), *self._args,
                               **self._options)

    @staticmethod
    def program_of(function: Any, args: tuple[Any, ...]) -> IRModule:
        """The program of a function, which may be transformed itself, for these arguments."""
        if isinstance(function, (Transformed, Jitted)):
            return function.module(*args)
        return module_for(function, Signature(function, (), ()), args, {})


def _axes(in_axes: Any, count: int) -> tuple[Any, ...]:
    return tuple(in_axes) if isinstance(in_axes, (tuple, list)) else (in_axes,) * count


def _example(value: Any, axis: int | None) -> Any:
    """One example of a batch."""
    if axis is None:
        return value
    return np.take(np.asarray(value), 0, axis)


def _tensors(type_: Type, leaves: Any) -> Any:
    if isinstance(type_, TupleType):
        return tuple([_tensors(field, leaves) for field in type_.fields])
    array = np.asarray(next(leaves))
    return wrap(value_node(array, as_dtype(array.dtype)))
