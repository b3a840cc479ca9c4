"""The context that a type relation sees: one operator call under inference."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.expr import Call
from weft.ir.op import Op
from weft.ir.types import (
    IncompleteType,
    TensorType,
    TupleType,
    Type,
    has_negative_size,
    is_complete,
)
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.report import (
    argument_name,
    argument_notes,
    signature_help,
    type_error,
)
from weft.ir.typing.solver import ERROR, TypeSolver, UnifyError
from weft.support.errors import (
    AttrsError,
    InternalError,
    OperatorError,
    TypeInferenceError,
    WeftError,
)
from weft.support.user_code import location_of


class CallContext(RelationContext):
    """The ``RelationContext`` of one call, which documents the methods."""

    __slots__ = ("_args", "_call", "_function", "_op", "_out", "_solver")

    def __init__(self, solver: TypeSolver, call: Call, args: tuple[Type, ...], out: Type,
                 function: str | None) -> None:
        if not isinstance(call.op, Op):
            raise InternalError("only calls of operators have a type relation")
        self._solver = solver
        self._call = call
        self._op = call.op
        self._args = args
        self._out = out
        self._function = function

    @property
    def op_name(self) -> str:
        return self._op.name

    @property
    def attrs(self) -> Attrs:
        return self._call.attrs

    @property
    def args(self) -> tuple[Type, ...]:
        return tuple(self._solver.resolve(a) for a in self._args)

    @property
    def out(self) -> Type:
        return self._solver.resolve(self._out)

    def tensor(self, index: int) -> TensorType | None:
        type_ = self._solver.shallow(self._args[index])
        if isinstance(type_, TensorType):
            return type_
        if isinstance(type_, IncompleteType):
            return None
        self.fail("the argument must be a tensor", arg=index, expected="a tensor", got=type_)
        return None

    def tensors(self, index: int) -> tuple[TensorType, ...] | None:
        type_ = self._solver.shallow(self._args[index])
        if isinstance(type_, IncompleteType):
            return None
        if not isinstance(type_, TupleType):
            what, wanted = "the argument must be a tuple of tensors", "a tuple of tensors"
            self.fail(what, arg=index, expected=wanted, got=type_)
            return None
        known = []
        for position, field in enumerate(map(self._solver.shallow, type_.fields)):
            if isinstance(field, IncompleteType):
                return None
            if not isinstance(field, TensorType):
                what = f"field {position} must be a tensor"
                self.fail(what, arg=index, expected="a tensor", got=field)
                return None
            known.append(field)
        return tuple(known)

    def output(self, type_: Type) -> None:
        is_type = isinstance(type_, Type)
        if not is_type or (isinstance(type_, TensorType) and not isinstance(type_.dtype, DType)):
            raise self._broken("states an invalid result type", got=repr(type_),
                               expected="TensorType.of(shape, dtype), or a TupleType")
        if has_negative_size(type_):
            self.fail("the result would have a negative size", got=type_)
        try:
            self._solver.unify(self._out, type_)
        except UnifyError as error:
            self.fail(f"the result does not have the expected type ({error.detail})",
                      expected=self._solver.resolve(self._out), got=type_)

    def unify_arg(self, index: int, type_: Type) -> None:
        try:
            self._solver.unify(self._args[index], type_)
        except UnifyError as error:
            self.fail(f"the argument has the wrong type ({error.detail})", arg=index,
                      expected=type_, got=self._solver.resolve(self._args[index]))

    def fail(self, message: str, *, arg: int | None = None, axis: int | None = None,
             expected: object = None, got: object = None, help: str | None = None) -> Any:
        at = []
        if arg is not None:
            at.append(argument_name(self._call, arg))
        if axis is not None:
            at.append(f"axis {axis}")
        raise type_error(self._call, self._function, f"{self.op_name}: {message}",
                         expected=expected, got=got,
                         notes=[*([f"at {', '.join(at)}"] if at else []), *self._notes()],
                         help=help or signature_help(self._op))

    def _notes(self) -> list[str]:
        return argument_notes(self._call, self.args)

    # -- driven by inference -----------------------------------------------------------------

    def attempt(self, on_error: Callable[[WeftError], None]) -> bool:
        """Run the relation once; ``on_error`` gets its failure, which ends it."""
        if any(self._solver.is_error(a) for a in self._args):
            self._give_up()
            return True
        try:
            takes_blocks = self._op.traits.takes_blocks
            if not takes_blocks:
                self._refuse_blocks(self._args, "its argument")
            done = self._op.relation(self)  # type: ignore[misc]
            if done and not takes_blocks:
                self._refuse_blocks((self._out,), "its result")
            if not isinstance(done, bool):
                raise self._broken("does not return a bool",
                                   expected="True if done, False to be retried", got=repr(done))
            return done
        except TypeInferenceError as error:
            on_error(error if error.where else self._placed(error))
        except AttrsError as error:
            on_error(self._placed(error))
        self._give_up()
        return True

    def _refuse_blocks(self, types: Iterable[Type], got: str) -> None:
        """Fail if one of the types has blocks of quantised numbers as elements."""
        for number, kind in enumerate(map(self._solver.shallow, types)):
            if isinstance(kind, TupleType):
                self._refuse_blocks(kind.fields, got)
            elif isinstance(kind, TensorType) and kind.dtype.is_block:
                self.fail(f"not defined for blocks of quantised numbers, {got}",
                          arg=number if types is self._args else None,
                          expected="numbers", got=kind,
                          help="nn.block_dequantize makes floats of blocks")

    def _broken(self, what: str, *, expected: str, got: str) -> OperatorError:
        """The error for a bug in the relation itself."""
        where = None if self._op.relation is None else location_of(self._op.relation)
        return OperatorError(f"the relation of {self.op_name} {what}", where=where,
                             expected=expected, got=got)

    def _placed(self, error: WeftError) -> WeftError:
        return type_error(self._call, self._function, f"{self.op_name}: {error.what}",
                          expected=error.expected, got=error.got,
                          notes=[*error.notes, *self._notes()],
                          help=error.help or signature_help(self._op))

    def stuck(self) -> WeftError:
        """The error for a relation whose inputs never became known."""
        return type_error(self._call, self._function,
                          f"{self.op_name}: the type cannot be inferred",
                          expected="the types of its arguments", got=self._unknown_arguments(),
                          notes=self._notes(),
                          help="annotate the variables that these arguments depend on")

    def _unknown_arguments(self) -> str:
        open_ = [i for i, a in enumerate(self.args) if not is_complete(a)]
        names = [argument_name(self._call, i) for i in open_]
        return f"unknown types of {', '.join(names) or 'the result'}"

    def _give_up(self) -> None:
        if isinstance(self._solver.shallow(self._out), IncompleteType):
            self._solver.unify(self._out, ERROR)
