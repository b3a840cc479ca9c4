"""Full derivatives: ``weft.jacobian`` and ``weft.hessian``.

A Jacobian is a product with all unit vectors at once: forward mode or reverse mode for one vector,
vectorised over the rows of an identity matrix (JAX's ``jacfwd`` and ``jacrev``).
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.compiler.transformations.parameters import (
    Argnums,
    ExampleInputs,
    Inputs,
    Wanted,
    imported,
)
from weft.frontend.source import ModelLike
from weft.ir import IRModule, TensorType, TupleType, Type, infer_type, substitute
from weft.ir.expr import Expr, Function, Tuple, Var, const
from weft.ir.shape import AnyDim, KnownDim, dim_add, dim_product
from weft.op.gradients import field_of
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.batching.vectorize import Axes, Vectorize
from weft.transform.autodiff.forward.transform import ForwardMode
from weft.transform.autodiff.reverse.gradient import Gradient

_MODES = (None, "forward", "reverse")


def jacobian(
    model: ModelLike,
    argnums: Argnums = None,
    *,
    with_respect_to: str | Sequence[str] = (),
    mode: str | None = None,
    training: bool | None = None,
    inputs: Inputs = None,
    example_inputs: ExampleInputs = None,
) -> IRModule:
    """The module that returns the Jacobian of each result with respect to each parameter.

    The Jacobian of a result of shape ``(m..)`` with respect to a parameter of shape ``(n..)`` has
    shape ``(m.., n..)``. For a program with several results the module returns a tuple, nested as
    they are, of what it returns for each: one Jacobian for an ``argnums`` that is an int, otherwise
    a tuple of them.

    ``mode`` is ``"forward"`` (the cost of as many products as the parameters have elements),
    ``"reverse"`` (as many as the results have), or by default the cheaper of the two. The other
    arguments are those of ``weft.grad``.

    Raises ``PassError`` for operators that cannot be differentiated, and for results and
    parameters that are not floating-point tensors or tuples of them.
    """
    if mode not in _MODES:
        raise OptionError("unknown mode of jacobian", got=repr(mode),
                          expected='"forward", "reverse" or None')
    mod = imported(model, inputs, example_inputs)
    wanted = Wanted.of(mod, argnums, with_respect_to)
    return _jacobian(mod, wanted, mode, training=training)


def hessian(
    model: ModelLike,
    argnums: Argnums = None,
    *,
    with_respect_to: str | Sequence[str] = (),
    training: bool | None = None,
    inputs: Inputs = None,
    example_inputs: ExampleInputs = None,
) -> IRModule:
    """The second derivatives of each result: forward mode over reverse mode.

    For a scalar program of one parameter of shape ``(n..)`` the module returns an array of shape
    ``(n.., n..)``; for several parameters a tuple with one tuple for each, ``result[i][j]``. The
    arguments are those of ``weft.grad``.
    """
    mod = imported(model, inputs, example_inputs)
    wanted = Wanted.of(mod, argnums, with_respect_to)
    first = _jacobian(mod, wanted, "reverse", training=training)
    return _jacobian(first, wanted, "forward", training=training)


def _jacobian(mod: IRModule, wanted: Wanted, mode: str | None, *, training: bool | None
              ) -> IRModule:
    main = mod["main"]
    params = {p.name: p for p in main.params}
    columns = [_Block.of(params[n], f"%{n}") for n in wanted.names if n in params]
    rows = _leaves(type_of(main.body))
    if mode is None:
        mode = _cheaper(rows, columns)
    build = _by_columns if mode == "forward" else _by_rows
    return build(mod, wanted, rows, training)


class _Block:
    """A tensor as a block of elements, flattened in row-major order."""

    def __init__(self, type_: TensorType, what: str) -> None:
        for dim in type_.shape:
            if isinstance(dim, AnyDim):
                raise PassError(f"the Jacobian of {what} has an unknown size", got=type_,
                                expected="sizes that the inputs determine")
        if not type_.dtype.is_float:
            raise PassError(f"{what} has no Jacobian", got=type_, expected="floating point",
                            help="return other values from another program")
        self.type = type_
        self.shape: tuple[KnownDim, ...] = tuple(d for d in type_.shape
                                                 if not isinstance(d, AnyDim))
        self.size: KnownDim = dim_product(self.shape)  # type: ignore[assignment]

    @staticmethod
    def of(value: Expr, what: str) -> _Block:
        type_ = type_of(value)
        if not isinstance(type_, TensorType):
            raise PassError(f"{what} is not a tensor", where=value.span, got=type_,
                            expected="a tensor", help="give each field a parameter of its own")
        return _Block(type_, what)


def _leaves(type_: Type) -> list[_Block]:
    """The tensors of a result, in order."""
    found: list[_Block] = []
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, TensorType):
            found.append(_Block(current, "a result"))
        elif isinstance(current, TupleType):
            pending.extend(reversed(current.fields))
        else:
            raise PassError("a result has no Jacobian", got=current,
                            expected="tensors and tuples of them")
    return found


def _cheaper(rows: Sequence[_Block], columns: Sequence[_Block]) -> str:
    """Forward mode costs a product per element of the parameters, reverse mode per result."""
    outs, ins = _total(rows), _total(columns)
    if isinstance(outs, int) and isinstance(ins, int):
        return "forward" if ins <= outs else "reverse"
    return "reverse" if isinstance(outs, int) else "forward"


def _total(blocks: Sequence[_Block]) -> KnownDim:
    return _offsets(blocks)[-1]


def _offsets(blocks: Sequence[_Block]) -> list[KnownDim]:
    """Where each block starts among the elements of all, and where the last ends."""
    found: list[KnownDim] = [0]
    for block in blocks:
        after = dim_add(found[-1], block.size)
        assert not isinstance(after, AnyDim)
        found.append(after)
    return found


def _identity(blocks: Sequence[_Block]) -> list[Expr]:
    """For each block, its rows of all unit vectors: ``(total size, *shape)``."""
    total = _total(blocks)
    made: list[Expr] = []
    for block, offset in zip(blocks, _offsets(blocks), strict=False):
        dtype = block.type.dtype
        places = op.arange(start=-offset, stop=total - offset, dtype="int64")
        rows = op.one_hot(places, const(1, dtype), const(0, dtype), depth=block.size)
        made.append(op.reshape(rows, newshape=(total, *block.shape), allowzero=True))
    return made


def _by_columns(mod: IRModule, wanted: Wanted, rows: Sequence[_Block], training: bool | None
                ) -> IRModule:
    """Forward mode for all unit vectors of the parameters; ``dy`` has the batch as last axis."""
    params = {p.name: p for p in mod["main"].params}
    columns = [_Block.of(params[n], f"%{n}") for n in wanted.names]
    after = _derivatives(ForwardMode(with_respect_to=wanted.names, training=training)(mod))
    count = len(after["main"].params) - len(columns)
    in_axes: Axes = (*(None,) * count, *(0,) * len(columns))
    batched = infer_type(Vectorize(axis_size=_total(columns), in_axes=in_axes,
                                   out_axes=-1)(after))
    tangents = _flat(_applied(batched, count, _identity(columns)))
    result_type = type_of(mod["main"].body)

    def one(index: int) -> Expr:
        parts = []
        for column, offset in zip(columns, _offsets(columns), strict=False):
            part = _cut(tangents[index], rows[index].type.ndim, offset, column.size, len(columns))
            shape = (*rows[index].shape, *column.shape)
            parts.append(op.reshape(part, newshape=shape, allowzero=True))
        return parts[0] if wanted.single else Tuple(tuple(parts))

    return _finished(batched, count, _nested(result_type, [one(i) for i in range(len(rows))]))


def _by_rows(mod: IRModule, wanted: Wanted, rows: Sequence[_Block], training: bool | None
             ) -> IRModule:
    """Reverse mode for all unit vectors of the results; the gradients have the batch first."""
    result_type = type_of(mod["main"].body)
    if isinstance(result_type, TensorType) and not result_type.ndim:
        return _of_scalar(mod, wanted, training)
    params = {p.name: p for p in mod["main"].params}
    columns = [_Block.of(params[n], f"%{n}") for n in wanted.names]
    after = _derivatives(Gradient(with_respect_to=wanted.names, training=training,
                                  cotangent="parameter", unused="zeros")(mod))
    count = len(after["main"].params) - 1
    in_axes: Axes = (*(None,) * count, 0)
    batched = infer_type(Vectorize(axis_size=_total(rows), in_axes=in_axes)(after))
    gradients = _flat(_applied(batched, count, [_nested(result_type, _identity(rows))]))
    results = []
    for row, offset in zip(rows, _offsets(rows), strict=False):
        parts = []
        for gradient, column in zip(gradients, columns, strict=True):
            part = _cut(gradient, 0, offset, row.size, len(rows))
            parts.append(op.reshape(part, newshape=(*row.shape, *column.shape), allowzero=True))
        results.append(parts[0] if wanted.single else Tuple(tuple(parts)))
    return _finished(batched, count, _nested(result_type, results))


def _derivatives(mod: IRModule) -> IRModule:
    """``mod``, whose result is a value and its derivatives, without the value."""
    main = infer_type(mod)["main"]
    return infer_type(mod.with_function("main", main.replace(body=field_of(main.body, 1),
                                                             ret_type=None)))


def _of_scalar(mod: IRModule, wanted: Wanted, training: bool | None) -> IRModule:
    after = infer_type(Gradient(with_respect_to=wanted.names, training=training)(mod))
    gradients = field_of(after["main"].body, 1)
    result = field_of(gradients, 0) if wanted.single else gradients
    return _finished(after, len(after["main"].params), result)


def _cut(x: Expr, axis: int, first: KnownDim, size: KnownDim, count: int) -> Expr:
    """The elements of one of ``count`` blocks along ``axis``."""
    if count == 1:
        return x
    return op.strided_slice(x, begin=(first,), end=(first + size,), axes=(axis,))


def _applied(mod: IRModule, count: int, values: Sequence[Expr]) -> Expr:
    """The typed body of ``main`` with ``values`` for the parameters from number ``count`` on."""
    fn = mod["main"]
    bound: dict[Var, Expr] = dict(zip(fn.params[count:], values, strict=True))
    body = substitute(fn.body, bound)
    made = infer_type(mod.with_function("main", Function(fn.params[:count], body, span=fn.span)))
    return made["main"].body


def _finished(mod: IRModule, count: int, result: Expr) -> IRModule:
    fn = mod["main"]
    return infer_type(mod.with_function(
        "main", Function(fn.params[:count], result, span=fn.span, attrs=fn.attrs)))


def _flat(value: Expr) -> list[Expr]:
    """The tensors of ``value``, in order."""
    found: list[Expr] = []
    pending = [value]
    while pending:
        current = pending.pop()
        type_ = type_of(current)
        if isinstance(type_, TupleType):
            pending.extend(field_of(current, i) for i in reversed(range(len(type_.fields))))
        else:
            found.append(current)
    return found


def _nested(type_: Type, values: Sequence[Expr]) -> Expr:
    """``values`` nested as the tensors of ``type_`` are."""
    rest = iter(values)

    def build(current: Type) -> Expr:  # as deep as the result of a program
        if isinstance(current, TupleType):
            return Tuple(tuple(build(f) for f in current.fields))
        return next(rest)

    return build(type_)
