"""The recorded graph: signatures of calls, and the nodes that tensors hold.

A ``Signature`` is what a call of an operator has in common with all calls of the same operator on
operands of the same types: it is made, and typed by the operator's type relation, once. A ``Node``
is one recorded call, or a value. Recording therefore costs a look-up in a table.
"""

from __future__ import annotations

import abc
import itertools
import math
import sys
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from weft.eager.device import CPU, copied, device
from weft.eager.dtypes import COMPLEX, dtype, of_ir
from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem, Var
from weft.ir.op import Op, get_op
from weft.ir.span import Span
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.infer import infer_expr
from weft.support.allocation import machine_memory
from weft.support.errors import AllocationError, InternalError, InvalidInputError, WeftError

PACKAGE_ROOT = str(Path(__file__).resolve().parents[1])
_SERIAL = next_serial = itertools.count(1).__next__
_NUMBER = itertools.count(1).__next__


class Spec:
    """Shape, dtype and device of a tensor; one object for each, compared by identity."""

    __slots__ = ("device", "dtype", "fields", "number", "shape", "type")

    def __init__(self, type_: Type, fields: tuple[Spec, ...] | None, where: device) -> None:
        self.type = type_
        self.device = where
        self.number = _NUMBER()
        self.fields = fields  # of a tuple of tensors
        self.shape: tuple[int, ...] = ()
        self.dtype: dtype = None  # type: ignore[assignment] - tuples have none
        if isinstance(type_, TensorType):
            self.shape = type_.concrete_shape
            self.dtype = of_ir(type_.dtype)

    def as_pair(self) -> Spec:
        """The spec of complex numbers seen as pairs of floats, along one more axis."""
        return spec_of_type(self.type, self.device)


_TUPLES: dict[tuple[Spec, ...], Spec] = {}


def spec_of(shape: tuple[int, ...], d: dtype, where: device = CPU) -> Spec:
    """The spec of tensors of a shape and dtype on a device."""
    found = where.specs.get((shape, d.name))
    if found is None:
        found = where.specs.setdefault((shape, d.name), _made(shape, d, where))
    return found


def _made(shape: tuple[int, ...], d: dtype, where: device) -> Spec:
    if d.rank != COMPLEX:
        return Spec(TensorType(shape, d.ir), None, where)
    found = Spec(TensorType((*shape, 2), d.to_real().ir), None, where)
    found.shape, found.dtype = shape, d
    return found


def spec_of_type(type_: Type, where: device = CPU) -> Spec:
    """The spec of a tensor type, or of a tuple of such; ``InternalError`` for other types."""
    if isinstance(type_, TensorType):
        return spec_of(type_.concrete_shape, of_ir(type_.dtype), where)
    if isinstance(type_, TupleType):
        return spec_of_fields([spec_of_type(field, where) for field in type_.fields], where)
    raise InternalError("a recorded operator returns neither a tensor nor a tuple", got=type_)


def spec_of_fields(specs: Iterable[Spec], where: device | None = None) -> Spec:
    """The spec of a tuple, which lies where its fields do."""
    fields = tuple(specs)
    found = _TUPLES.get(fields)
    if found is None:
        found = _TUPLES.setdefault(fields, Spec(TupleType(tuple(f.type for f in fields)), fields,
                                                where or common_device(fields)))
    return found


class DeviceMismatchError(InvalidInputError):
    """The operands of an operator lie on several devices."""


def common_device(specs: Iterable[Spec], name: str = "a tuple") -> device:
    """The device of a call on operands of these specs.

    A tensor of the CPU without axes goes with every device, as in torch. Raises
    ``DeviceMismatchError`` for other mixtures.
    """
    places = dict.fromkeys(spec.device for spec in specs if spec.shape or spec.fields
                           or spec.device is not CPU)
    if len(places) > 1:
        raise DeviceMismatchError(
            f"{name}: the tensors are not all on the same device", where=user_span(),
            expected="one device", got=" and ".join(map(str, places)),
            help=f'move one of them: x.to("{next(p for p in places if p is not CPU)}")')
    return next(iter(places), CPU)


class Signature:
    """An operator with attributes, on operands of these types. ``kind`` is one of those below."""

    __slots__ = ("args", "attrs", "differentiable", "kind", "name", "number", "op", "out", "rules")

    def __init__(self, kind: str, out: Spec, args: tuple[Spec, ...] = (), op: Op | None = None,
                 attrs: Attrs | None = None, index: int = 0) -> None:
        self.kind = kind
        self.op = op
        self.attrs: Any = index if kind == FIELD else attrs
        self.args = args
        self.out = out
        self.number = _NUMBER()
        self.name = op.name if op is not None else kind
        self.rules: dict[Any, Any] = {}  # gradients, by the arguments that need one
        self.differentiable = _holds_float(out) and any(map(_holds_float, args))


CALL, FIELD, PACK, ALIAS, VALUE, CONSTANT, NUMBER, CUSTOM, PLACEHOLDER, TRANSFER, LOOP = (
    "call", "field", "tuple", "alias", "value", "constant", "number", "custom", "placeholder",
    "transfer", "loop")


def _holds_float(spec: Spec) -> bool:
    if spec.fields is not None:
        return any(map(_holds_float, spec.fields))
    return spec.dtype.rank > 1


_SIGNATURES: dict[Any, Signature] = {}


def call_signature(name: str, attrs: Mapping[str, Any], key: Any, args: tuple[Node, ...],
                   where: device = CPU) -> Signature:
    """The signature of a call, typed by the operator's relation at its first use.

    ``key`` is a hashable form of ``attrs``. A call of numbers and constants alone is one of the
    device ``where``. Raises the errors of the relation and of the attributes at the user's line,
    and ``DeviceMismatchError``.
    """
    specs = tuple([a.sig.out for a in args])
    table = _SIGNATURES if where is CPU else where.signatures
    found = table.get((name, key, specs))
    if found is None:
        found = table.setdefault((name, key, specs), _typed(name, attrs, specs, where))
    return found


class ComplexOperandError(WeftError):
    """A call has complex numbers, of which ``weft.eager.complex_numbers`` makes calls of floats."""


def _is_complex(attrs: Mapping[str, Any], specs: Iterable[Spec]) -> bool:
    """Whether a call takes complex numbers, or is to give some."""
    to = attrs.get("dtype")
    return any(s.dtype.rank == COMPLEX for spec in specs for s in spec.fields or (spec,)) or (
        isinstance(to, DType) and to.code == "complex")


def _typed(name: str, attrs: Mapping[str, Any], specs: tuple[Spec, ...], where: device
           ) -> Signature:
    if _is_complex(attrs, specs):
        raise ComplexOperandError(f"{name} of complex numbers")
    common = common_device(specs, name)
    op = get_op(name)
    placeholders = tuple(Var(f"x{i}", spec.type) for i, spec in enumerate(specs))
    call = call_of(op, op.attrs_type.make(dict(attrs)), placeholders, user_span())
    typed = infer_expr(call, trust=True)
    if typed.checked_type is None:
        raise InternalError(f"the type of {name} is not inferred")
    out = spec_of_type(typed.checked_type, where if common is CPU else common)
    if not any(spec.fields or spec.shape for spec in specs):
        _check_memory(out, name)
    return Signature(CALL, out, specs, op, call.attrs)


def _check_memory(out: Spec, name: str) -> None:
    """Raise ``AllocationError`` for a tensor made of numbers that the machine cannot hold.

    A program may use such a tensor without making it: a sum over it would just never end.
    """
    fields = out.fields or (out,)
    nbytes = sum(math.prod(one.shape) * one.dtype.numpy.itemsize for one in fields)
    if nbytes > machine_memory():
        shapes = ", ".join(str(one.type) for one in fields)
        raise AllocationError(f"cannot allocate memory for the result of {name}",
                              where=user_span(), got=f"{shapes}: {nbytes} bytes",
                              expected=f"at most {machine_memory()} bytes, the machine's memory",
                              help="use smaller sizes")


def call_of(op: Op, attrs: Attrs, args: tuple[Expr, ...], span: Span | None) -> Call:
    """The IR of a recorded call; an operator on a tuple of tensors takes them one by one here."""
    if len(op.inputs) == 1 and op.inputs[0].startswith("*"):
        args = (Tuple(args, span=span),)
    elif len(args) != len(op.inputs):
        raise WeftError(f"{op.name} takes {len(op.inputs)} tensors",
                        expected=", ".join(op.inputs), got=str(len(args)), where=span)
    return Call(op, args, attrs, span=span)


_FIELDS: dict[tuple[Spec, int], Signature] = {}
_SIMPLE: dict[tuple[str, Any], Signature] = {}


def field_signature(spec: Spec, index: int) -> Signature:
    """The signature of taking a field of a tuple."""
    found = _FIELDS.get((spec, index))
    if found is None:
        assert spec.fields is not None
        found = _FIELDS.setdefault((spec, index), Signature(FIELD, spec.fields[index], (spec,),
                                                            index=index))
    return found


def simple_signature(kind: str, spec: Spec) -> Signature:
    """The signature of a value, a number or an alias of this spec."""
    found = _SIMPLE.get((kind, spec))
    if found is None:
        args = (spec,) if kind == ALIAS else ()
        found = _SIMPLE.setdefault((kind, spec), Signature(kind, spec, args))
    return found


def pack_signature(specs: tuple[Spec, ...]) -> Signature:
    """The signature of a tuple of tensors."""
    found = _SIMPLE.get((PACK, specs))
    if found is None:
        found = _SIMPLE.setdefault((PACK, specs), Signature(PACK, spec_of_fields(specs), specs))
    return found


def alias_signature(spec: Spec, out: Spec) -> Signature:
    """The signature of the same memory with another spec: complex numbers, or their parts."""
    found = _SIMPLE.get((ALIAS, (spec, out)))
    if found is None:
        found = _SIMPLE.setdefault((ALIAS, (spec, out)), Signature(ALIAS, out, (spec,)))
    return found


def transfer_signature(spec: Spec, where: device) -> Signature:
    """The signature of a copy of a tensor of this spec to another device."""
    found = _SIMPLE.get((TRANSFER, (spec, where)))
    if found is None:
        out = spec_of(spec.shape, spec.dtype, where)
        found = _SIMPLE.setdefault((TRANSFER, (spec, where)), Signature(TRANSFER, out, (spec,)))
    return found


class Node:
    """A recorded call, or a value.

    ``value`` is an array, a Python number for ``NUMBER``, a tuple with an array or ``None`` for
    each field of a tuple, or ``None`` for a call that has not run. ``grad`` says what ``backward``
    does: ``None`` for a value without gradient, ``RECORDED`` for a call through which gradients
    flow, else the weak reference of the leaf tensor. ``site`` is where the user recorded it.
    """

    __slots__ = ("__weakref__", "args", "check", "extra", "grad", "link", "serial", "sig", "site",
                 "value")

    def __init__(self, sig: Signature, args: tuple[Node, ...], value: Any,
                 site: tuple[CodeType, int] | None) -> None:
        self.sig = sig
        self.args = args
        self.value = value
        self.site = site
        self.serial = _SERIAL()
        self.grad: Any = None
        self.extra: Any = None  # hooks; the user's backward of CUSTOM
        self.link: Any = None  # the CUSTOM node that an alias is a result of, and its number
        self.check: Any = None  # what must hold when the call runs

    @property
    def span(self) -> Span | None:
        """The user's line that recorded the node."""
        return span_of(self.site)


def is_value(node: Node) -> bool:
    """Whether a node has its whole value."""
    return node.value is not None and node.value.__class__ is not tuple


def depends_on(node: Node, sources: Container[Node]) -> bool:
    """Whether a node is one of ``sources``, or computed from one."""
    stack, seen = [node], {node}
    while stack:
        one = stack.pop()
        if one in sources:
            return True
        new = [a for a in one.args if a not in seen]
        seen.update(new)
        stack += new
    return False


RECORDED, FREED = "recorded", "freed"


def call_ir(node: Node, args: tuple[Expr, ...]) -> Expr:
    """The IR of a node whose operands are these expressions."""
    sig = node.sig
    if sig.kind == CALL:
        assert sig.op is not None
        return call_of(sig.op, sig.attrs, args, node.span)
    if sig.kind == FIELD:
        return TupleGetItem(args[0], sig.attrs, span=node.span)
    if sig.kind == PACK:
        return Tuple(args, span=node.span)
    if sig.kind in (ALIAS, TRANSFER):  # a program runs on one device
        return args[0]
    if sig.kind == LOOP:
        return sig.attrs.expression(args, node.span)  # type: ignore[no-any-return]
    if sig.kind == PLACEHOLDER:
        raise InvalidInputError(
            "a tensor of a traced function or of the body of a loop is used outside of it",
            got=f"a tensor of shape {sig.out.shape}", help="return it")
    raise InternalError("a value has no call", got=sig.kind)


def value_node(array: Any, d: dtype, where: device = CPU) -> Node:
    """A node for a concrete array in the memory of a device, which is C-contiguous and never
    written again. Complex numbers may come as an array of pairs.
    """
    if d.rank == COMPLEX:
        pairs = paired(array) if array.dtype == d.numpy else array
        return Node(simple_signature(VALUE, spec_of(pairs.shape[:-1], d, where)), (), pairs, None)
    return Node(simple_signature(VALUE, spec_of(array.shape, d, where)), (), array, None)


def paired(array: np.ndarray) -> np.ndarray:
    """The memory of an array of complex numbers as pairs of floats."""
    return array.reshape(*array.shape, 1).view(array.real.dtype)


def unpaired(array: np.ndarray) -> np.ndarray:
    """The memory of pairs of floats as an array of complex numbers."""
    return array.view(_COMPLEX[array.dtype]).reshape(array.shape[:-1])


_COMPLEX = {np.dtype(np.float32): np.dtype(np.complex64),
            np.dtype(np.float64): np.dtype(np.complex128)}


def constant_node(array: np.ndarray, d: dtype) -> Node:
    """A node for an array that is no tensor: it goes to the device of the tensors beside it."""
    if d.rank == COMPLEX:
        return Node(simple_signature(CONSTANT, spec_of(array.shape, d)), (), paired(array), None)
    return Node(simple_signature(CONSTANT, spec_of(array.shape, d)), (), array, None)


def number_node(value: Any, d: dtype, where: device = CPU) -> Node:
    """A node for a Python number, converted to a scalar of the real dtype ``d``."""
    sig = where.numbers.get(d.name)
    if sig is None:
        sig = where.numbers[d.name] = simple_signature(NUMBER, spec_of((), d, where))
    return Node(sig, (), value, None)


def scalar_node(value: Any, d: dtype, where: device = CPU) -> Node:
    """``number_node`` of any dtype: complex numbers are constants."""
    if d.rank != COMPLEX:
        if value.__class__ is complex and d.rank:
            raise InvalidInputError("a complex number has no value of a real dtype",
                                    got=repr(value), expected=repr(d),
                                    help="convert the tensor to a complex dtype")
        return number_node(value, d, where)
    array = np.array(value, d.numpy)
    if where is CPU:
        return constant_node(array, d)
    spec = spec_of((), d, where)
    return Node(simple_signature(VALUE, spec), (), copied(paired(array), CPU, where), None)


def user_site(inner: int = 1) -> tuple[CodeType, int] | None:
    """Code object and instruction of the nearest frame outside weft.

    ``inner`` frames above this one are known to be weft's.
    """
    frame: FrameType | None = sys._getframe(inner + 1)  # noqa: SLF001 - as documented
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE_ROOT):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


class ModuleMemory(abc.ABC):
    """Stands in a tensor for memory that a compiled step updates in place.

    ``snapshot`` gives a node with the present value, whose array is never written again.
    """

    __slots__ = ("__weakref__",)

    @abc.abstractmethod
    def snapshot(self) -> Node: ...

    @abc.abstractmethod
    def follower(self) -> ModuleMemory:
        """The present value for a tensor that is detached from this one."""

    @property
    @abc.abstractmethod
    def sig(self) -> Signature: ...


def user_span() -> Span | None:
    """The user's line that called weft."""
    return span_of(user_site())


def span_of(site: tuple[CodeType, int] | None) -> Span | None:
    """File and line of an instruction."""
    if site is None:
        return None
    code, instruction = site
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return Span(code.co_filename, line)
    return Span(code.co_filename, code.co_firstlineno)
