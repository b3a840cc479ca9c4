"""Sums of products over named axes: einsum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import te
from weft.ir import CONTINUOUS, Attrs, Dim, KnownDim, TensorType, TupleType, attr, multilinear
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem, const
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.batching import with_attrs
from weft.op.gradients import attrs_of, known_dim, tensor_type
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.topi import einsum as topi


@dataclass(frozen=True, kw_only=True)
class EinsumAttrs(Attrs):
    equation: str = attr(doc="letters for the axes of each operand and of the result: ij,jk->ik",
                         check=topi.is_equation, expected="letters, commas, ... and one ->")


def _einsum_relation(ctx: RelationContext) -> bool:
    operands = ctx.tensors(0)
    if operands is None:
        return False
    equation = ctx.attrs_as(EinsumAttrs).equation
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    if len(terms) != len(operands):
        ctx.fail("the equation has another number of operands", arg=0,
                 expected=f"{len(terms)} tensors", got=f"{len(operands)}")
    for term, type_ in zip(terms, operands, strict=True):
        ctx.expect_number(0, type_)
        ctx.expect_same_dtype(0, type_, operands[0].dtype)
        letters = len(term.replace("...", ""))
        if type_.ndim != letters if "..." not in term else type_.ndim < letters:
            ctx.fail(f"the letters {term!r} do not fit an operand", arg=0,
                     expected=f"rank {letters}", got=type_)
    axes = topi.parse(equation, [t.ndim for t in operands])
    sizes: dict[str, Dim] = {}
    for names, type_ in zip(axes.inputs, operands, strict=True):
        for position, (name, size) in enumerate(zip(names, type_.shape, strict=True)):
            known = sizes.get(name, size)
            if known == 1 and topi.is_broadcast(name):
                known = size
            if not (size == 1 and topi.is_broadcast(name)):
                known = ctx.expect_dim(0, position, size, known, f"axis {name!r} has two sizes")
            sizes[name] = known
    ctx.output(TensorType(tuple(sizes[name] for name in axes.output), operands[0].dtype))
    return True


@define_op("einsum", attrs=EinsumAttrs, relation=_einsum_relation, pattern=OpPattern.OPAQUE,
           inputs=("*tensors",), level=11, traits=multilinear(CONTINUOUS))
def einsum(tensors: tuple[te.Tensor, ...], attrs: EinsumAttrs) -> te.Tensor:
    """Einstein summation: products of elements, summed over the letters missing in the result.

    Operands are contracted from left to right, two at a time. Without ``->`` the result has the
    letters that occur once, in alphabetical order.
    """
    return topi.einsum(tensors, attrs.equation)


def _einsum_reference(tensors: Sequence[np.ndarray], equation: str) -> np.ndarray:
    return np.array(np.einsum(equation, *tensors), tensors[0].dtype, order="C")


einsum.spec(
    _einsum_reference, op_case([(3, 4), (4, 2)], equation="ij,jk->ik"),
    op_case([(2, 3, 4), (2, 4, 5)], equation="...ij,...jk->...ik"),
    op_case([(3, 3)], equation="ii"), op_case([(3, 3)], equation="ii->i"),
    op_case([(3, 4)], equation="ij->ji"), op_case([(3,), (4,)], equation="i,j->ij"),
    op_case([(2, 3), (3, 4), (4, 2)], equation="ab,bc,ca->"),
    op_case([(2, 3), (2,)], equation="ij,i"),
    op_case([(0, 3), (3, 2)], equation="ij,jk->ik"),
    op_case([(2, 3, 4), (1, 4, 2)], equation="...ij,...jk->ik..."),
    op_case([(3, 3, 2), (3,)], equation="iij,i->j"),
    op_case([(3, 4), (4,)], equation="ij, j -> i", dtypes="int32", low=-9, high=9),
)


@einsum.gradient
def _einsum_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The gradient of each operand is an einsum with the operand and the result exchanged."""
    type_ = call.args[0].checked_type
    fields = type_.fields if isinstance(type_, TupleType) else ()
    types = [t for t in fields if isinstance(t, TensorType)]
    axes = topi.parse(attrs_of(call, EinsumAttrs).equation, [t.ndim for t in types])
    whole = [TupleGetItem(call.args[0], n) for n in range(len(types))]
    parts = [_without_broadcast(names, part, t)
             for names, part, t in zip(axes.inputs, whole, types, strict=True)]
    arriving = _without_broadcast(axes.output, dy, tensor_type(call))
    gradients = [_operand_gradient(parts[n], [arriving, *parts[:n], *parts[n + 1:]])
                 for n in range(len(parts))]
    return [Tuple(tuple(get_op("reshape_like")(g, w)
                        for g, w in zip(gradients, whole, strict=True)))]


@dataclass(frozen=True, slots=True)
class _Operand:
    """A tensor with the names and sizes of its axes."""

    names: str
    value: Expr
    sizes: tuple[KnownDim, ...]


def _without_broadcast(names: str, value: Expr, type_: TensorType) -> _Operand:
    """The operand without the axes of ``...`` that have size 1."""
    shape = tuple(known_dim(d, value) for d in type_.shape)
    ones = tuple(a for a, n in enumerate(names) if topi.is_broadcast(n) and shape[a] == 1)
    kept = [a for a in range(len(names)) if a not in ones]
    squeezed = get_op("squeeze")(value, axis=ones) if ones else value
    return _Operand("".join(names[a] for a in kept), squeezed, tuple(shape[a] for a in kept))


def _operand_gradient(operand: _Operand, others: Sequence[_Operand]) -> Expr:
    """The einsum of ``others``, summed over the letters that ``operand`` lacks.

    A tensor of ones supplies letters that only the operand has, and an identity matrix represents a
    repeated letter.
    """
    terms = [(o.names, o.value) for o in others]
    terms.append((operand.names, get_op("ones_like")(operand.value)))
    wanted = ""
    for name, size in zip(operand.names, operand.sizes, strict=True):
        if name not in wanted:
            wanted += name
            continue
        fresh = topi.fresh_letter("".join([wanted, *(names for names, _ in terms)]))
        if not isinstance(size, int):
            raise PassError("the gradient of a repeated letter needs a fixed size",
                            where=operand.value.span, got=size)
        identity = get_op("cast_like")(const(np.eye(size)), operand.value)
        terms.append((name + fresh, identity))
        wanted += fresh
    equation = topi.write([names for names, _ in terms], wanted)
    return einsum(Tuple(tuple(value for _, value in terms)), equation=equation)


@einsum.batching
def _einsum_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr | None:
    """One more letter in front of every operand and of the result."""
    equation = attrs_of(call, EinsumAttrs).equation.replace(" ", "")
    type_ = call.args[0].checked_type
    fields = type_.fields if isinstance(type_, TupleType) else ()
    if "..." in equation:
        return None
    axes = topi.parse(equation, [t.ndim for t in fields if isinstance(t, TensorType)])
    letter = topi.fresh_letter("".join((*axes.inputs, axes.output)))
    wider = topi.write([letter + names for names in axes.inputs], letter + axes.output)
    return with_attrs(call, args, equation=wider)
