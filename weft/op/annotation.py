"""Annotations, which are free: stop_fusion, checkpoint, stop_gradient, barrier direct passes,
on_device says where a program runs, and match_cast names the sizes that data determines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, Type, attr, identity_relation
from weft.ir.op import Op, OpPattern, define_op, op_case
from weft.ir.shape import AnyDim, Dim, KnownDim, dims_equal
from weft.ir.traits import ZERO_GRADIENT, OpTraits, linear
from weft.ir.virtual_device import DEVICE_TEXT, is_device_text
from weft.op.batching import leading, repeated, with_attrs
from weft.op.gradients import attrs_of, typed_zeros
from weft.op.layout_inference import InputLayout, LayoutResult, data_layout, keep_layout
from weft.support.dataclass import dataclass
from weft.topi import elementwise

_BARRIER = linear(OpTraits(is_reshape=True, is_annotation=True))


def _annotation(name: str, traits: OpTraits, doc: str) -> Op:
    """An operator that returns its argument, as an alias of its memory."""

    def run(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
        return elementwise.identity(x)

    run.__doc__ = doc
    op = define_op(f"annotation.{name}", relation=identity_relation, pattern=OpPattern.OPAQUE,
                   level=10, inputs=("x",), traits=traits)(run)
    op.layout(keep_layout)
    op.batching(leading)
    op.spec(np.copy, op_case((3, 5)), op_case(()), op_case((0, 4)), op_case((2,), dtypes="bool"))
    return op


stop_fusion = _annotation(
    "stop_fusion", _BARRIER,
    "``x``, written to memory: operators before and after it never share a kernel.")
checkpoint = _annotation(
    "checkpoint", _BARRIER,
    "``x``, kept in memory: the pass ``recompute`` starts from it when it recomputes later values.")
stop_gradient = _annotation(
    "stop_gradient", replace(ZERO_GRADIENT, is_annotation=True),
    "``x``, treated as a constant by differentiation: no gradient flows back through it\n"
    "(``detach`` in torch).")
stop_gradient.inference_form(lambda call: call.args[0])
for _identity in (stop_fusion, checkpoint):
    _identity.gradient(lambda _call, _y, dy: [dy])


@define_op("annotation.barrier", relation=identity_relation, level=10, inputs=("x", "after"),
           traits=_BARRIER)
def barrier(x: te.Tensor, _after: te.Tensor | tuple[te.Tensor, ...], _attrs: Attrs) -> te.Tensor:
    """``x``, available once ``after``, a tensor or a tuple of tensors, is computed.

    Computations from the result are not merged with equal ones from ``x``, and run later than
    ``after``: values of a forward pass that are computed again occupy no memory until then. It is
    an alias of the memory of ``x`` (XLA's ``OptimizationBarrier``).
    """
    return elementwise.identity(x)


barrier.spec(lambda x, after: np.copy(x), op_case((3, 5), (2,)),  # noqa: ARG005
             op_case((), [(2,), (0, 3)]), op_case((0, 4), (), dtypes=("int32", "float32")))
barrier.gradient(lambda call, _y, dy: [dy, typed_zeros(call.args[1])])


@barrier.jvp
def _barrier_jvp(call: Call, _y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    return None if tangents[0] is None else barrier(tangents[0], call.args[1])


@barrier.batching
def _barrier_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    x = repeated(args[0], call.args[0], is_batched=is_batched[0], size=size)
    return with_attrs(call, (x, args[1]))


@barrier.layout
def _barrier_layout(
    attrs: Attrs, inputs: tuple[InputLayout, ...], _types: tuple[Type, ...]
) -> LayoutResult:
    """Any layout of ``x``; the elements of ``after`` are not read."""
    return LayoutResult(inputs, (data_layout(inputs),), attrs)


@dataclass(frozen=True, kw_only=True)
class OnDeviceAttrs(Attrs):
    device: str = attr("", "device, in part or whole: kind:index/memory_scope; empty for any",
                       check=is_device_text, expected=DEVICE_TEXT)
    constrain_body: bool = attr(True, "x is computed on the device")
    constrain_result: bool = attr(False, "the result is read on the device")
    colocate: str = attr("", "group of colocation: x of all annotations that name it are computed "
                             "on one device; empty for none")


@define_op("annotation.on_device", attrs=OnDeviceAttrs, relation=identity_relation, level=10,
           pattern=OpPattern.OPAQUE, inputs=("x",),
           traits=_BARRIER)
def on_device(x: te.Tensor, _attrs: OnDeviceAttrs) -> te.Tensor:
    """``x``, computed on a device, with a border between ``x`` and what reads the result.

    Relay's ``on_device``. What computes ``x`` is on the device, back to the borders of other
    annotations and to the inputs; the result is wherever its consumers are, unless
    ``constrain_result``. Without a device and a constraint it is a border alone: ``x`` and the
    result may be on different devices. The pass ``plan_devices`` replaces it.
    """
    return elementwise.identity(x)


on_device.spec(lambda x, **_attrs: np.copy(x), op_case((3, 5), device="sim:1"),
               op_case((), device="cpu"),
               op_case((0, 4), colocate="group"),
               op_case((2,), dtypes="bool", device="cuda:0/global", constrain_result=True))
on_device.layout(keep_layout)
on_device.batching(leading)


@on_device.gradient
def _on_device_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """``dy`` comes from the device of the result and goes to that of ``x``."""
    attrs = attrs_of(call, OnDeviceAttrs)
    return [on_device(dy, device=attrs.device, constrain_body=attrs.constrain_result,
                      constrain_result=attrs.constrain_body)]


@on_device.jvp
def _on_device_jvp(call: Call, _y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    tangent = tangents[0]
    return None if tangent is None else Call(call.op, (tangent,), call.attrs, span=call.span)


@dataclass(frozen=True, kw_only=True)
class MatchCastAttrs(Attrs):
    shape: tuple[KnownDim, ...] = attr(doc="sizes of x; a new symbol names a size that is unknown",
                                       expected="sizes >= 0, or symbols")


def _match_cast_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    wanted = ctx.attrs_as(MatchCastAttrs).shape
    ctx.expect_rank(0, source, len(wanted))
    for axis, (size, given) in enumerate(zip(source.shape, wanted, strict=True)):
        if dims_equal(size, given) is False:
            ctx.fail("the size differs from that of the argument", arg=0, axis=axis,
                     expected=str(given), got=source)
    ctx.output(TensorType(tuple(given if isinstance(size, AnyDim) else size
                                for size, given in zip(source.shape, wanted, strict=True)),
                          source.dtype))
    return True


@define_op("annotation.match_cast", attrs=MatchCastAttrs, relation=_match_cast_relation,
           pattern=OpPattern.OPAQUE, level=10, inputs=("x",),
           traits=_BARRIER)
def match_cast(x: te.Tensor, _attrs: MatchCastAttrs) -> te.Tensor:
    """``x``, whose sizes that only run time determines get names: ``(?, 3)`` becomes ``(u0, 3)``.

    Later operators take the size as any other symbol (Lai et al., "Relax: Composable Abstractions
    for End-to-End Dynamic Machine Learning", 2023). It is an alias of the memory of ``x``.
    """
    return elementwise.identity(x)


match_cast.spec(lambda x, shape: np.copy(x).reshape(shape), op_case((3, 5), shape=(3, 5)),
                op_case((), shape=()), op_case((0, 4), shape=(0, 4)))
match_cast.gradient(lambda _call, _y, dy: [dy])


@match_cast.batching
def _match_cast_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    return with_attrs(call, args, shape=(size, *attrs_of(call, MatchCastAttrs).shape))
