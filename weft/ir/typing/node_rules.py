"""The typing rule of each kind of node, one method each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from weft.ir import expr
from weft.ir.dtype import bool_
from weft.ir.op import Op
from weft.ir.types import (
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    has_any,
    is_complete,
)
from weft.ir.typing import report
from weft.ir.typing.adt import instantiate, missing_case
from weft.ir.typing.call import CallContext
from weft.ir.typing.kinds import kind_error
from weft.ir.typing.solver import ERROR, Deferred, TypeSolver, UnifyError, join_types
from weft.support.errors import WeftError

_UNIT = TupleType(())
_CONDITION = TensorType((), bool_)
_REF_HELP = "ref(x) makes a reference that holds values of the type of x"
# The result types of calls of operators on operands without unknown sizes: a program has few
# different ones, and every pass that replaces a call asks for its type again.
_RESULTS: dict[tuple[Op, Any, tuple[Type, ...]], Type] = {}
_MOST_RESULTS = 8192


def known_result(node: expr.Expr) -> Type | None:
    """The type of a call of an operator on typed operands, if such a call was inferred before."""
    if type(node) is not expr.Call or type(node.op) is not Op:
        return None
    return _RESULTS.get((node.op, node.attrs, tuple([a.checked_type for a in node.args])))  # type: ignore[arg-type]


def _is_fixed(type_: Type) -> bool:
    """Whether a type is a tensor without unknown sizes, or a tuple of such."""
    if isinstance(type_, TensorType):
        return not has_any(type_.shape)
    return isinstance(type_, TupleType) and type_.complete and all(map(_is_fixed, type_.fields))


class NodeRules:
    """Types of nodes from those of their operands; subclasses walk the program.

    ``definitions`` are the data types of the module; ``None`` for a single expression, which may
    refer to data types of any module.
    """

    def __init__(self, definitions: Mapping[str, expr.TypeData] | None) -> None:
        self.solver = TypeSolver()
        self.types: dict[int, Type] = {}
        self.type_args: dict[int, tuple[Type, ...]] = {}
        self.errors: list[WeftError] = []
        self.function: str | None = None
        self._definitions = definitions or {}
        self._closed = definitions is not None
        self._ill_formed: set[int] = set()
        self._contexts: list[tuple[Deferred, CallContext]] = []

    def _call(self, call: expr.Call) -> Type:
        args = tuple(self.types[id(a)] for a in call.args)
        if isinstance(call.op, Op):
            return self._op_call(call, call.op, args)
        callee = self.solver.shallow(self.types[id(call.op)])
        if callee is ERROR:
            return ERROR
        if isinstance(callee, IncompleteType):
            out = IncompleteType()
            self._unify(call, callee, FuncType(args, out), "the callee is used with another type",
                        help="annotate the variable that is called with its function type")
            return out
        if not isinstance(callee, FuncType):
            self._fail(call, f"{report.describe(call.op)} is not a function", expected="a function",
                       got=callee, help="only functions, operators and constructors can be called")
            return ERROR
        return self._function_call(call, callee, args)

    def _op_call(self, call: expr.Call, op: Op, args: tuple[Type, ...]) -> Type:
        if len(args) != len(op.inputs) or op.relation is None:
            self._fail(call, f"{op.name} takes {report.counted(len(op.inputs), 'argument')}",
                       expected=", ".join(op.inputs), got=report.counted(len(args), "argument"),
                       help=report.signature_help(op))
            return ERROR
        key = op, call.attrs, tuple(map(self.solver.shallow, args))
        known = _RESULTS.get(key)
        if known is not None:
            return known
        out, failures = IncompleteType(), len(self.errors)
        context = CallContext(self.solver, call, args, out, self.function)
        relation = Deferred(lambda: context.attempt(self.errors.append), (*args, out))
        self.solver.add(relation)
        if not relation.done:
            self._contexts.append((relation, context))
        result = self.solver.shallow(out)
        succeeded = relation.done and len(self.errors) == failures
        if succeeded and all(map(_is_fixed, (*key[2], result))):
            if len(_RESULTS) >= _MOST_RESULTS:
                _RESULTS.clear()
            _RESULTS[key] = result
        return result

    def _function_call(self, call: expr.Call, callee: FuncType, args: tuple[Type, ...]) -> Type:
        if call.type_args and len(call.type_args) != len(callee.type_params):
            self._fail(
                call,
                f"{report.describe(call.op)} takes "
                f"{report.counted(len(callee.type_params), 'type argument')}",
                expected=callee,
                got=report.counted(len(call.type_args), "type argument"),
                help="leave the type arguments out to have them inferred",
            )
            return ERROR
        if len(args) != len(callee.arg_types):
            self._fail(
                call,
                f"{report.describe(call.op)} takes "
                f"{report.counted(len(callee.arg_types), 'argument')}",
                expected=callee,
                got=report.counted(len(args), "argument"),
                help=f"the arguments are {_listed(callee.arg_types)}",
            )
            return ERROR
        for type_arg in call.type_args:
            self._check_kind(call, type_arg)
        type_args = call.type_args or tuple(IncompleteType() for _ in callee.type_params)
        if type_args:
            self.type_args[id(call)] = type_args
        concrete = instantiate(callee, type_args)
        for index, (given, asked) in enumerate(zip(args, concrete.arg_types, strict=True)):
            self._argument(call, index, self._as_asked(given, asked), asked, callee)
        return concrete.ret_type

    def _argument(
        self, call: expr.Call, index: int, given: Type, asked: Type, callee: FuncType
    ) -> None:
        try:
            self.solver.unify(asked, given)
        except UnifyError as error:
            # Types may be large; format them only for an error.
            where = f"{report.argument_name(call, index)} of {report.describe(call.op)}"
            self._fail(call, f"{where} has the wrong type ({error.detail})",
                       expected=self.solver.resolve(asked), got=self.solver.resolve(given),
                       help=_argument_help(call.args[index], callee, call))

    def _as_asked(self, given: Type, asked: Type) -> Type:
        """A generic function is instantiated where a monomorphic one is expected."""
        known, wanted = self.solver.shallow(given), self.solver.shallow(asked)
        if isinstance(known, FuncType) and isinstance(wanted, FuncType) and not wanted.type_params:
            return instantiate(known)
        return given

    def _tuple(self, node: expr.Tuple) -> Type:
        return TupleType(tuple(self.solver.shallow(self.types[id(f)]) for f in node.fields))

    def _tuple_get_item(self, node: expr.TupleGetItem) -> Type:
        known = self.solver.shallow(self.types[id(node.tuple_value)])
        if isinstance(known, TupleType):
            if 0 <= node.index < len(known.fields):
                return known.fields[node.index]
            self._fail_field(node, known)
            return ERROR
        if isinstance(known, IncompleteType):
            return self._later_field(node, known)
        if known is not ERROR:
            self._fail_field(node, known)
        return ERROR

    def _later_field(self, node: expr.TupleGetItem, value: Type) -> Type:
        out = IncompleteType()

        def attempt() -> bool:
            known = self.solver.shallow(value)
            if isinstance(known, IncompleteType):
                return False
            if not isinstance(known, TupleType) or node.index >= len(known.fields):
                self._fail_field(node, known)
                self.solver.unify(out, ERROR)
            else:
                self._unify(node, out, known.fields[node.index], "the field has the wrong type")
            return True

        self.solver.add(Deferred(attempt, (value,)))
        return out

    def _fail_field(self, node: expr.TupleGetItem, known: Type) -> None:
        if not isinstance(known, TupleType):
            what, way_out = "projection of a value that is not a tuple", "project tuples only"
            self._fail(node, what, expected="a tuple", got=known, help=way_out)
            return
        count = len(known.fields)
        self._fail(node, f"tuple index {node.index} is out of range",
                   expected=f"a field from 0 to {count - 1}" if count else "a tuple with fields",
                   got=known, help="fields are counted from 0")

    def _function(self, fn: expr.Function) -> Type:
        result = self.types[id(fn.body)]
        if fn.ret_type is not None:
            self._check_kind(fn, fn.ret_type)
            self._unify(fn, fn.ret_type, result, "the body does not have the declared return type",
                        help="change the declared type, or leave it out to have it inferred")
            result = fn.ret_type
        params = tuple(self.solver.shallow(self.types[id(p)]) for p in fn.params)
        return FuncType(params, self.solver.shallow(result), fn.type_params)

    def _let(self, node: expr.Let) -> Type:
        return self.types[id(node.body)]

    def _if(self, node: expr.If) -> Type:
        self._unify(node, _CONDITION, self.types[id(node.cond)],
                    "the condition is not a boolean scalar",
                    help="compare with something, or reduce with all or any, to one truth value")
        return self._join(
            node, [self.types[id(node.true_branch)], self.types[id(node.false_branch)]]
        )

    def _join(self, node: expr.Expr, branches: list[Type]) -> Type:
        """The type of a value that comes from any of the branches."""
        result = branches[0]
        for branch in branches[1:]:
            left, right = self.solver.resolve(result), self.solver.resolve(branch)
            joined = None
            if is_complete(left) and is_complete(right):
                joined = join_types(left, right)
            if joined is None:
                self._unify(node, left, right, "the branches have different types",
                            help="make every branch end in a value of one type")
                joined = left
            result = joined
        return result

    def _ref_create(self, node: expr.RefCreate) -> Type:
        return RefType(self.types[id(node.value)])

    def _ref_read(self, node: expr.RefRead) -> Type:
        held = IncompleteType()
        self._unify(node, RefType(held), self.types[id(node.ref)], "only a reference can be read",
                    help=_REF_HELP)
        return self.solver.shallow(held)

    def _ref_write(self, node: expr.RefWrite) -> Type:
        self._unify(node, self.types[id(node.ref)], RefType(self.types[id(node.value)]),
                    "the reference does not hold values of this type", help=_REF_HELP)
        return _UNIT

    def _match(self, node: expr.Match) -> Type:
        if not node.clauses:
            self._fail(node, "a match needs at least one clause",
                       expected="match (..) { PATTERN => { .. }, }", got="no clause",
                       help="add a clause; _ matches everything")
            return ERROR
        if node.complete and id(node) not in self._ill_formed:
            missing = missing_case(node.clauses, self._definitions)
            if missing is not None:
                self._fail(node, "the match does not cover every case",
                           expected=f"a clause that matches {missing}",
                           got=f"no clause for {missing}",
                           help="add a clause, or write match? where a failing match is meant")
        return self._join(node, [self.types[id(c.rhs)] for c in node.clauses])

    # -- errors --------------------------------------------------------------------------------

    def _unify(
        self, node: expr.Expr, asked: Type, given: Type, message: str, *, help: str | None = None
    ) -> None:
        try:
            self.solver.unify(asked, given)
        except UnifyError as error:
            self._fail(node, f"{message} ({error.detail})", expected=self.solver.resolve(asked),
                       got=self.solver.resolve(given), help=help)

    def _fail(self, node: expr.Expr, what: str, **fields: Any) -> None:
        self.errors.append(report.type_error(node, self.function, what, **fields))

    def _report(self, error: WeftError, node: expr.Expr) -> None:
        self._fail(node, error.what, expected=error.expected, got=error.got, help=error.help)

    def _check_kind(self, node: expr.Expr, type_: Type | None) -> None:
        """Report a declared type with an undefined data type or wrong type arguments."""
        if type_ is None or isinstance(type_, TensorType) or not self._closed:
            return
        error = kind_error(type_, self._definitions)
        if error is not None:
            self._report(error, node)

    _rules: ClassVar[dict[type, Callable[[Any, Any], Type]]] = {
        expr.Call: _call,
        expr.Tuple: _tuple,
        expr.TupleGetItem: _tuple_get_item,
        expr.Function: _function,
        expr.Let: _let,
        expr.If: _if,
        expr.RefCreate: _ref_create,
        expr.RefRead: _ref_read,
        expr.RefWrite: _ref_write,
        expr.Match: _match,
    }


def _listed(given: tuple[Type, ...]) -> str:
    return ", ".join(map(report.readable_type, given)) or "none"


def _argument_help(arg: expr.Expr, callee: FuncType, call: expr.Call) -> str:
    if isinstance(arg, expr.Constructor) and not arg.inputs:
        return f"a constructor without fields must be called as well: {arg.name}()"
    return f"{report.describe(call.op, arguments=False)} is {report.readable_type(callee)}"
