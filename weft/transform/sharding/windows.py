"""Windows: an operand's dimension that is read at ``i * stride + offset`` for a few offsets.

Where the result is cut along ``i``, a device needs its part of the operand and the borders of its
neighbours' parts: a *halo*. Beyond the ends of the mesh the halo is the padding of the operator,
which the call on the part leaves out along this dimension.
"""

from __future__ import annotations

from collections.abc import Callable

from weft import op, te
from weft.ir import Call, Expr, TensorType, Tuple, infer_expr
from weft.ir.sharding import Mesh
from weft.support.dataclass import dataclass
from weft.te.tensor import ComputeOp, Operation, PlaceholderOp
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, Var, int_value


@dataclass(frozen=True, slots=True)
class Window:
    """Part ``r`` of the result, of L indices, reads operand ``operand`` along ``dim`` from
    ``stride * r * L + low`` to ``stride * ((r + 1) * L - 1) + high``; ``fill`` is the padding.
    """

    operand: int
    dim: int
    stride: int
    low: int
    high: int
    fill: float

    @property
    def before(self) -> int:
        """Elements that a device needs from before its part; below 0, that it leaves out."""
        return -self.low

    @property
    def after(self) -> int:
        return self.high - self.stride + 1

    def fits(self, part: int) -> bool:
        """Whether the neighbours hold the halo of a part of so many elements."""
        return max(self.before, self.after) <= part


@dataclass(frozen=True, slots=True)
class Padding:
    """A stage that pads an operand: (before, after) of each dimension."""

    source: te.Tensor
    widths: tuple[tuple[int, int], ...]
    fill: float


def padding_of(operation: Operation) -> Padding | None:
    """What a stage pads, if it only pads an operand by a constant."""
    if not isinstance(operation, ComputeOp) or operation.role is not te.StageRole.PADDING:
        return None
    (body,) = operation.body
    if not isinstance(body, x.Call) or body.name != "if_then_else":
        return None
    _, inner, value = body.args
    fill = getattr(value, "value", None)
    if not isinstance(inner, x.ProducerLoad) or not isinstance(inner.producer.op, PlaceholderOp):
        return None
    if not isinstance(fill, (int, float)) or (isinstance(fill, int) and fill != float(fill)):
        return None
    widths = []
    for axis, index, size in zip(operation.axis, inner.indices, inner.producer.shape, strict=True):
        terms = affine(index, lambda _: True)
        extent, length = int_value(axis.extent), int_value(size)
        if terms is None or terms[0] != {axis.var: 1} or extent is None or length is None:
            return None
        widths.append((-terms[1], extent - length + terms[1]))
    return Padding(inner.producer, tuple(widths), float(fill))


def affine(index: PrimExpr, is_known: Callable[[Var], bool]) -> tuple[dict[Var, int], int] | None:
    """The coefficients of variables and the constant of an affine index; ``None`` for others."""
    terms: dict[Var, int] = {}
    constant = 0
    pending = [(index, 1)]
    while pending:
        e, scale = pending.pop()
        value = int_value(e)
        if value is not None:
            constant += scale * value
        elif isinstance(e, Var) and is_known(e):
            terms[e] = terms.get(e, 0) + scale
        elif isinstance(e, x.Add):
            pending += [(e.a, scale), (e.b, scale)]
        elif isinstance(e, x.Sub):
            pending += [(e.a, scale), (e.b, -scale)]
        elif isinstance(e, x.Mul) and (by := int_value(e.b)) is not None:
            pending.append((e.a, scale * by))
        elif isinstance(e, x.Mul) and (by := int_value(e.a)) is not None:
            pending.append((e.b, scale * by))
        else:
            return None
    return terms, constant


def with_halo(part: Expr, window: Window, axes: tuple[str, ...], mesh: Mesh
              ) -> tuple[Expr, list[Call]]:
    """A device's part with the borders that its neighbours along ``axes`` hold, and the permutes
    that bring these.
    """
    type_ = part.checked_type
    assert isinstance(type_, TensorType)
    length, dim = type_.concrete_shape[window.dim], window.dim

    def cut(begin: int, end: int) -> Expr:
        if (begin, end) == (0, length):
            return part
        return op.strided_slice(part, begin=(begin,), end=(end,), strides=(1,), axes=(dim,))

    def received(border: Expr, shift: int) -> Call:
        made = infer_expr(op.collective.permute(
            border, axes=axes, size=mesh.parts(axes), shift=shift, wraps=False,
            fill=window.fill), trust=True)
        assert isinstance(made, Call)
        return made

    before = [received(cut(length - window.before, length), 1)] if window.before > 0 else []
    after = [received(cut(0, window.after), -1)] if window.after > 0 else []
    blocks = [*before, cut(max(-window.before, 0), length + min(window.after, 0)), *after]
    joined = op.concatenate(Tuple(tuple(blocks)), axis=dim) if len(blocks) > 1 else blocks[0]
    return infer_expr(joined, trust=True), [*before, *after]
