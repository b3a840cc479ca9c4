"""Reverse mode: ``weft.grad``, ``weft.value_and_grad`` and ``weft.vjp``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.compiler.transformations.parameters import (
    Argnums,
    ExampleInputs,
    Inputs,
    Wanted,
    imported,
)
from weft.frontend.source import ModelLike
from weft.ir import Constant, Expr, Function, IRModule, Tuple, const, get_op, infer_type, substitute
from weft.ir.types import TensorType, TupleType, Type, is_static
from weft.op.gradients import field_of
from weft.support.errors import OptionError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.reverse.gradient import Gradient

# An array for a tensor, a tuple for a tuple; "parameter" or "ones".
Cotangent: TypeAlias = Any


def grad(
    model: ModelLike,
    argnums: Argnums = None,
    *,
    with_respect_to: str | Sequence[str] = (),
    cotangent: Cotangent = None,
    has_aux: bool = False,
    unused: str = "error",
    training: bool | None = None,
    inputs: Inputs = None,
    example_inputs: ExampleInputs = None,
) -> IRModule:
    """The module that returns the gradients of a scalar program (JAX's ``grad``).

    ``model``, ``inputs`` and ``example_inputs`` are those of ``weft.compile``; the weights of an
    ONNX or torch model are constants; its parameters are the inputs of the graph. ``argnums`` is
    the position of a parameter, whose gradient the module returns, or positions, for a tuple of
    gradients; ``with_respect_to`` gives names instead. By default it returns a tuple with the
    gradient of each floating-point parameter. The result compiles like any other module, and can
    be transformed again.

    ``cotangent`` is the gradient of a result that is not a scalar: an array of its type (for a
    tuple, a tuple of arrays), ``"ones"`` (the gradients are then those of the sum of all
    elements), or ``"parameter"``, which makes it a last parameter ``%cotangent``. With ``has_aux``
    the model returns ``(value, aux, ..)``, and the module ``(gradients, aux)``. A parameter on
    which the value does not depend is an error, or has a gradient of zeros with
    ``unused="zeros"``.

    ``nn.batch_norm`` and ``nn.dropout`` raise ``PassError`` unless ``training`` says what they do:
    with ``False`` batch norm uses the given statistics and dropout is the identity; with ``True``
    batch norm normalises by the statistics of the batch, through which gradients flow. Dropout in
    training is ``random.dropout``, which takes a key. ``weft.stop_gradient`` blocks gradients.

    Raises ``PassError`` with a list of all operators that cannot be differentiated, for a result
    that is not a scalar, and for parameters that are not floating point; ``OptionError`` for other
    options that do not fit; and what importing the model raises.
    """
    mod, wanted = _differentiated(model, argnums, with_respect_to, cotangent, has_aux=has_aux,
                                  unused=unused, training=training, inputs=inputs,
                                  example_inputs=example_inputs)
    pair = mod["main"].body
    gradients = _gradients_of(pair, wanted)
    if not has_aux:
        return _returning(mod, gradients)
    results = field_of(pair, 0)
    type_ = type_of(results)
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    aux = [field_of(results, i) for i in range(1, count)]
    return _returning(mod, Tuple((gradients, aux[0] if len(aux) == 1 else Tuple(tuple(aux)))))


def value_and_grad(
    model: ModelLike,
    argnums: Argnums = None,
    *,
    with_respect_to: str | Sequence[str] = (),
    cotangent: Cotangent = None,
    has_aux: bool = False,
    unused: str = "error",
    training: bool | None = None,
    inputs: Inputs = None,
    example_inputs: ExampleInputs = None,
) -> IRModule:
    """The module that returns ``(result, gradients)``; the arguments are those of ``weft.grad``.

    With ``has_aux`` the result is still all that the model returns: ``((value, aux), gradients)``.
    """
    mod, wanted = _differentiated(model, argnums, with_respect_to, cotangent, has_aux=has_aux,
                                  unused=unused, training=training, inputs=inputs,
                                  example_inputs=example_inputs)
    pair = mod["main"].body
    return _returning(mod, Tuple((field_of(pair, 0), _gradients_of(pair, wanted))))


def vjp(
    model: ModelLike,
    argnums: Argnums = None,
    *,
    with_respect_to: str | Sequence[str] = (),
    has_aux: bool = False,
    unused: str = "zeros",
    training: bool | None = None,
    inputs: Inputs = None,
    example_inputs: ExampleInputs = None,
) -> IRModule:
    """The vector-Jacobian product: ``(parameters.., cotangent) -> (result, gradients)``.

    The last parameter ``%cotangent`` has the type of the result (with ``has_aux``, of its first
    field). The other arguments are those of ``weft.grad``; parameters without influence have
    gradients of zeros.
    """
    return value_and_grad(model, argnums, with_respect_to=with_respect_to, cotangent="parameter",
                          has_aux=has_aux, unused=unused, training=training, inputs=inputs,
                          example_inputs=example_inputs)


def stop_gradient(value: Any) -> Any:
    """``value``, an expression or nested tuples of them, as a constant for differentiation.

    Use it in a ``@weft.function`` or a builder: ``x * weft.stop_gradient(exp(x))``.
    """
    if isinstance(value, (tuple, list)):
        return tuple(map(stop_gradient, value))
    return get_op("annotation.stop_gradient")(value)


def _differentiated(
    model: ModelLike, argnums: Argnums, with_respect_to: str | Sequence[str],
    cotangent: Cotangent, *, has_aux: bool, unused: str, training: bool | None, inputs: Inputs,
    example_inputs: ExampleInputs,
) -> tuple[IRModule, Wanted]:
    """The module that returns ``(result, (gradient, ..))``, typed."""
    mod = imported(model, inputs, example_inputs)
    wanted = Wanted.of(mod, argnums, with_respect_to)
    given = "parameter"
    if cotangent is None:
        given = "scalar"
    elif isinstance(cotangent, str):
        given = cotangent
    after = infer_type(Gradient(with_respect_to=wanted.names, training=training, cotangent=given,
                                unused=unused, has_aux=has_aux)(mod))
    if cotangent is None or isinstance(cotangent, str):
        return after, wanted
    fn = after["main"]
    *params, last = fn.params
    value = _constant(cotangent, type_of(last))
    bound = Function(tuple(params), substitute(fn.body, {last: value}), span=fn.span,
                     attrs=fn.attrs)
    return infer_type(after.with_function("main", bound)), wanted


def _constant(given: Any, type_: Type, path: str = "cotangent") -> Expr:
    """``given`` as a value of ``type_``; raises ``OptionError`` for another shape or dtype."""
    if isinstance(type_, TupleType):
        if not isinstance(given, (tuple, list)) or len(given) != len(type_.fields):
            raise OptionError(f"{path} does not fit the result", expected=str(type_),
                              got=type(given).__name__)
        fields = zip(given, type_.fields, strict=True)
        return Tuple(tuple(_constant(g, t, f"{path}[{i}]") for i, (g, t) in enumerate(fields)))
    if isinstance(given, (int, float)) and isinstance(type_, TensorType) and not type_.ndim:
        return const(given, type_.dtype)
    array = given.data if isinstance(given, Constant) else np.asarray(given)
    found = const(array).tensor_type
    if not isinstance(type_, TensorType) or found.dtype != type_.dtype or (
        is_static(type_) and found != type_
    ):
        raise OptionError(f"{path} does not fit the result", expected=str(type_), got=str(found),
                          help='cotangent="parameter" makes it an argument of the program')
    return const(array)


def _gradients_of(pair: Expr, wanted: Wanted) -> Expr:
    gradients = field_of(pair, 1)
    return field_of(gradients, 0) if wanted.single else gradients


def _returning(mod: IRModule, result: Expr) -> IRModule:
    """``mod`` with another result of ``main``."""
    return infer_type(mod.with_function("main", mod["main"].replace(body=result, ret_type=None)))
