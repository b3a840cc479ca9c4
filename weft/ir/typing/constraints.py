"""The first half of inference: a type, maybe with holes, for every node of a function.

The walk visits operands first and binds let variables before their scope, so that relations
mostly run once, at sight, with everything known. What is typed already, over operands that kept
their types, is taken as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from weft.ir.dtype import bool_
from weft.ir.expr import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
)
from weft.ir.op import Op
from weft.ir.types import (
    FuncType,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    Type,
    is_complete,
)
from weft.ir.typing.adt import bind_pattern, constructor_type, instantiate, missing_case
from weft.ir.typing.call import CallContext
from weft.ir.typing.report import argument_name, describe, place_of
from weft.ir.typing.solver import ERROR, Deferred, TypeSolver, UnifyError, join_types
from weft.ir.visitor import children
from weft.support.errors import TypeInferenceError, WeftError

_ENTER, _BIND, _EXIT = 0, 1, 2
_UNIT = TupleType(())
_CONDITION = TensorType((), bool_)


class Constraints:
    """Types of the nodes of one or several functions that are inferred together.

    ``order`` lists the nodes, operands first; ``types`` is keyed by ``id``; ``clean`` holds the
    nodes whose known type is still right, with everything below them. With ``trust``, nodes that
    have a type are believed, and not entered.
    """

    def __init__(
        self,
        global_types: Mapping[str, Type],
        definitions: Mapping[str, TypeData],
        *,
        trust: bool = False,
    ) -> None:
        self.solver = TypeSolver()
        self.types: dict[int, Type] = {}
        self.clean: set[int] = set()
        self.order: list[Expr] = []
        self.errors: list[WeftError] = []
        self.function: str | None = None
        self._trust = trust
        self._ill_formed: set[int] = set()
        self._global_types = global_types
        self._definitions = definitions
        self._contexts: list[tuple[Deferred, CallContext]] = []

    def collect(self, root: Expr, function: str | None = None) -> Type:
        """Visit everything below ``root`` and return its type as far as known."""
        self.function = function
        stack: list[tuple[Expr, int]] = [(root, _ENTER)]
        entered: set[int] = set()
        while stack:
            node, step = stack.pop()
            if step == _ENTER:
                if id(node) not in entered and id(node) not in self.types:
                    entered.add(id(node))
                    self._enter(node, stack)
            elif step == _BIND:
                self._bind(node)
            else:
                self._exit(node)
        return self.types[id(root)]

    def solve(self) -> None:
        """Retry what waits; report what still waits after that."""
        self.solver.run()
        if not self.errors:
            for relation, context in self._contexts:
                if not relation.done:
                    self.errors.append(context.stuck())

    def agree(self, fn: Function, declared: Type, found: Type) -> None:
        """State that a global function has the type that its callers were told."""
        self._unify(fn, declared, found, "the function is used with another type")

    # -- the walk ----------------------------------------------------------------------------

    def _enter(self, node: Expr, stack: list[tuple[Expr, int]]) -> None:
        if self._trust and node.checked_type is not None:
            self.clean.add(id(node))
            self._set(node, node.checked_type)
            return
        leaf = self._leaves.get(type(node))
        if leaf is not None:
            leaf(self, node)
            return
        stack.append((node, _EXIT))
        if isinstance(node, Let):
            if isinstance(node.value, Function) and node.var.annotation is None:
                # The function may call itself; what was inferred for it before may be outdated.
                self._set(node.var, IncompleteType())
            stack += [(node.body, _ENTER), (node, _BIND), (node.value, _ENTER)]
        elif isinstance(node, Match):
            stack.extend((clause.rhs, _ENTER) for clause in reversed(node.clauses))
            stack += [(node, _BIND), (node.data, _ENTER)]
        else:
            stack.extend((child, _ENTER) for child in reversed(children(node)))

    def _bind(self, node: Expr) -> None:
        if isinstance(node, Let):
            self._bind_var(node.var, self.types[id(node.value)])
        elif isinstance(node, Match):
            for clause in node.clauses:
                self._bind_clause(node, clause)

    def _bind_clause(self, match: Match, clause: Clause) -> None:
        data = self.types[id(match.data)]
        try:
            bind_pattern(clause.lhs, data, self.solver, self._definitions, self._bind_var)
        except TypeInferenceError as error:
            self._report(error, match)
            self._ill_formed.add(id(match))

    def _bind_var(self, var: Var, type_: Type) -> None:
        known = self.types.get(id(var))
        if known is None:
            known = var.annotation if var.annotation is not None else self.solver.shallow(type_)
            self._set(var, known)
        try:
            known = self.solver.unify(known, type_)
        except UnifyError as error:
            self._fail(
                var,
                f"%{var.name} is bound to a value of another type ({error.detail})",
                expected=error.left,
                got=error.right,
            )
        if var.checked_type is not None and var.checked_type == self.solver.resolve(known):
            self.clean.add(id(var))

    def _exit(self, node: Expr) -> None:
        known = node.checked_type
        if known is not None and all(id(c) in self.clean for c in children(node)):
            self.clean.add(id(node))
            self._set(node, known)
        else:
            self._set(node, self._rules[type(node)](self, node))

    def _set(self, node: Expr, type_: Type) -> None:
        self.types[id(node)] = type_
        self.order.append(node)

    # -- leaves ------------------------------------------------------------------------------

    def _leaf_constant(self, constant: Constant) -> None:
        self.clean.add(id(constant))
        self._set(constant, constant.checked_type or constant.tensor_type)

    def _leaf_var(self, var: Var) -> None:
        if var.annotation is not None:
            self._set(var, var.annotation)
        else:
            self._set(var, var.checked_type or IncompleteType())
        if var.checked_type is not None:
            self.clean.add(id(var))

    def _leaf_global(self, node: GlobalVar) -> None:
        known = self._global_types.get(node.name)
        if known is None:
            names = ", ".join(f"@{n}" for n in self._global_types)
            self._fail(
                node, f"the module has no function @{node.name}", expected=names or "a module"
            )
            known = ERROR
        if node.checked_type is not None and node.checked_type == known:
            self.clean.add(id(node))
        self._set(node, known)

    def _leaf_constructor(self, node: Constructor) -> None:
        self.clean.add(id(node))
        try:
            self._set(node, constructor_type(node, self._definitions))
        except TypeInferenceError as error:
            self._report(error, node)
            self._set(node, ERROR)

    def _leaf_op(self, node: Op) -> None:
        self._fail(
            node,
            f"the operator {node.name} is used as a value",
            help=f"wrap it in a function: fn (%x) {{ {node.name}(%x) }}",
        )
        self._set(node, ERROR)

    # -- rules, one per kind of node ------------------------------------------------------------

    def _call(self, call: Call) -> Type:
        args = tuple(self.types[id(a)] for a in call.args)
        if isinstance(call.op, Op):
            return self._op_call(call, call.op, args)
        callee = self.solver.shallow(self.types[id(call.op)])
        if callee is ERROR:
            return ERROR
        if isinstance(callee, IncompleteType):
            out = IncompleteType()
            self._unify(call, callee, FuncType(args, out), "the callee is used with another type")
            return out
        if not isinstance(callee, FuncType):
            self._fail(call, f"{describe(call.op)} is not a function", got=callee)
            return ERROR
        return self._function_call(call, callee, args)

    def _op_call(self, call: Call, op: Op, args: tuple[Type, ...]) -> Type:
        if len(args) != len(op.inputs) or op.relation is None:
            self._fail(
                call,
                f"{op.name} takes {len(op.inputs)} arguments",
                expected=", ".join(op.inputs),
                got=len(args),
            )
            return ERROR
        out = IncompleteType()
        context = CallContext(self.solver, call, args, out, self.function)
        relation = Deferred(lambda: context.attempt(self.errors.append), (*args, out))
        self.solver.add(relation)
        if not relation.done:
            self._contexts.append((relation, context))
        return self.solver.shallow(out)

    def _function_call(self, call: Call, callee: FuncType, args: tuple[Type, ...]) -> Type:
        if call.type_args and len(call.type_args) != len(callee.type_params):
            self._fail(
                call,
                f"{describe(call.op)} takes {len(callee.type_params)} type arguments",
                got=len(call.type_args),
            )
            return ERROR
        if len(args) != len(callee.arg_types):
            self._fail(
                call,
                f"{describe(call.op)} takes {len(callee.arg_types)} arguments",
                expected=callee,
                got=len(args),
            )
            return ERROR
        concrete = instantiate(callee, call.type_args)
        for index, (given, asked) in enumerate(zip(args, concrete.arg_types, strict=True)):
            self._unify(
                call,
                asked,
                given,
                f"{argument_name(call, index)} of {describe(call.op)} has the wrong type",
            )
        return concrete.ret_type

    def _tuple(self, node: Tuple) -> Type:
        return TupleType(tuple(self.solver.shallow(self.types[id(f)]) for f in node.fields))

    def _tuple_get_item(self, node: TupleGetItem) -> Type:
        known = self.solver.shallow(self.types[id(node.tuple_value)])
        if isinstance(known, TupleType):
            if 0 <= node.index < len(known.fields):
                return known.fields[node.index]
            self._fail(node, f"the tuple has no field {node.index}", got=known)
            return ERROR
        if isinstance(known, IncompleteType):
            return self._later_field(node, known)
        if known is not ERROR:
            self._fail(node, "a field is taken of what is no tuple", expected="a tuple", got=known)
        return ERROR

    def _later_field(self, node: TupleGetItem, value: Type) -> Type:
        out = IncompleteType()

        def attempt() -> bool:
            known = self.solver.shallow(value)
            if isinstance(known, IncompleteType):
                return False
            if not isinstance(known, TupleType) or node.index >= len(known.fields):
                self._fail(node, f"the value has no field {node.index}", got=known)
                self.solver.unify(out, ERROR)
            else:
                self._unify(node, out, known.fields[node.index], "the field has the wrong type")
            return True

        self.solver.add(Deferred(attempt, (value,)))
        return out

    def _function(self, fn: Function) -> Type:
        result = self.types[id(fn.body)]
        if fn.ret_type is not None:
            self._unify(fn, fn.ret_type, result, "the body does not have the declared return type")
            result = fn.ret_type
        params = tuple(self.solver.shallow(self.types[id(p)]) for p in fn.params)
        return FuncType(params, self.solver.shallow(result), fn.type_params)

    def _let(self, node: Let) -> Type:
        return self.types[id(node.body)]

    def _if(self, node: If) -> Type:
        self._unify(
            node, _CONDITION, self.types[id(node.cond)], "the condition is no boolean scalar"
        )
        return self._join(
            node, [self.types[id(node.true_branch)], self.types[id(node.false_branch)]]
        )

    def _join(self, node: Expr, branches: list[Type]) -> Type:
        """The type of whichever branch is taken."""
        result = branches[0]
        for branch in branches[1:]:
            left, right = self.solver.resolve(result), self.solver.resolve(branch)
            joined = None
            if is_complete(left) and is_complete(right):
                joined = join_types(left, right)
            if joined is None:
                self._unify(node, left, right, "the branches have different types")
                joined = left
            result = joined
        return result

    def _ref_create(self, node: RefCreate) -> Type:
        return RefType(self.types[id(node.value)])

    def _ref_read(self, node: RefRead) -> Type:
        held = IncompleteType()
        self._unify(node, RefType(held), self.types[id(node.ref)], "only a reference can be read")
        return self.solver.shallow(held)

    def _ref_write(self, node: RefWrite) -> Type:
        self._unify(
            node,
            RefType(self.types[id(node.value)]),
            self.types[id(node.ref)],
            "the reference does not hold values of this type",
        )
        return _UNIT

    def _match(self, node: Match) -> Type:
        if not node.clauses:
            self._fail(node, "a match needs at least one clause")
            return ERROR
        if node.complete and id(node) not in self._ill_formed:
            missing = missing_case(node.clauses, self._definitions)
            if missing is not None:
                self._fail(
                    node,
                    "the match does not cover every case",
                    got=f"no clause for {missing}",
                    help="add a clause, or write match? where a failing match is meant",
                )
        return self._join(node, [self.types[id(c.rhs)] for c in node.clauses])

    # -- errors --------------------------------------------------------------------------------

    def _unify(self, node: Expr, asked: Type, given: Type, message: str) -> None:
        try:
            self.solver.unify(asked, given)
        except UnifyError as error:
            self._fail(
                node,
                f"{message} ({error.detail})",
                expected=self.solver.resolve(asked),
                got=self.solver.resolve(given),
            )

    def _fail(self, node: Expr, what: str, **fields: Any) -> None:
        self.errors.append(TypeInferenceError(what, where=place_of(node, self.function), **fields))

    def _report(self, error: WeftError, node: Expr) -> None:
        self._fail(node, error.what, expected=error.expected, got=error.got)

    _leaves: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        Constant: _leaf_constant,
        Var: _leaf_var,
        GlobalVar: _leaf_global,
        Constructor: _leaf_constructor,
        Op: _leaf_op,
    }
    _rules: ClassVar[dict[type, Callable[[Any, Any], Type]]] = {
        Call: _call,
        Tuple: _tuple,
        TupleGetItem: _tuple_get_item,
        Function: _function,
        Let: _let,
        If: _if,
        RefCreate: _ref_create,
        RefRead: _ref_read,
        RefWrite: _ref_write,
        Match: _match,
    }
