"""Type inference for modules and expressions: incremental, and linear in the program.

``infer_type`` sets the ``checked_type`` of every node. Typed nodes keep their identity if the types
of their operands did not change, so inference after a pass costs one walk plus the work for the
nodes that the pass replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

from weft.ir.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    Tuple,
    TupleGetItem,
    TypeData,
    Var,
)
from weft.ir.module import IRModule, Settled
from weft.ir.op import Op
from weft.ir.shape import SymDim
from weft.ir.size_range import name_of
from weft.ir.types import FuncType, IncompleteType, TensorType, Type, is_complete
from weft.ir.typing.constraints import Constraints
from weft.ir.typing.kinds import kind_error
from weft.ir.typing.node_rules import known_result
from weft.ir.typing.report import describe, raise_collected, type_error
from weft.ir.typing.solver import ERROR
from weft.ir.visitor import children, post_order, rebuild
from weft.support.dataclass import replace
from weft.support.errors import TypeInferenceError, WeftError


def infer_type(mod: IRModule) -> IRModule:
    """``mod`` with every node typed; ``mod`` itself if it is typed already.

    Undeclared return types are inferred, callees first. Functions that did not change since the
    last inference are skipped unless the type of a function that they refer to changed. Raises
    ``TypeInferenceError`` with all errors found in ``errors``.
    """
    known: dict[str, Type] = {name: _declared(fn) for name, fn in mod.functions.items()}
    typed: dict[str, Function] = {}
    errors: list[WeftError] = [*_definition_errors(mod.type_definitions)]
    # A function alone is in order; the walk that infers its types finds the calls of itself.
    is_alone = len(mod.functions) == 1
    callees = {name: [] if is_alone else _callees(name, mod) for name in mod.functions}
    for group in _call_order(callees):
        if all(_is_settled(name, mod, known, group) for name in group):
            known.update((name, mod.settled[name].globals[name]) for name in group)
            continue
        if all(_is_typed(mod.functions[name], known[name]) for name in group):
            errors.extend(e for name in group for e in _range_errors(mod.functions[name], name))
            known.update((name, _type_of(mod.functions[name])) for name in group)
            continue
        part = Constraints(known, mod.type_definitions)
        try:
            for name in group:
                found = part.collect(mod.functions[name], name)
                part.agree(mod.functions[name], known[name], found)
            rebuilt = _finish(part)
        except RecursionError:
            raise _too_deep() from None
        if is_alone and any(type(node) is GlobalVar and node.name in known for node in part.order):
            callees[group[0]] = list(group)
        errors.extend(part.errors)
        errors.extend(error for name in group for error in _range_errors(mod.functions[name], name))
        for name in group:
            resolved = part.solver.resolve(known[name])
            known[name] = resolved if is_complete(resolved) else ERROR
            if not part.errors:
                typed[name] = rebuilt[id(mod.functions[name])]  # type: ignore[assignment]
    raise_collected(errors)
    changed = mod.with_functions(typed)
    return changed if changed is mod else _settle(changed, callees, known)


def _settle(
    mod: IRModule, callees: Mapping[str, Sequence[str]], known: Mapping[str, Type]
) -> IRModule:
    """``mod`` with a record of typed functions for the next inference."""
    settled = {
        name: Settled(fn, {c: known[c] for c in (name, *callees[name])}, mod.type_definitions)
        for name, fn in mod.functions.items()
    }
    return replace(mod, settled=settled)


def _is_settled(name: str, mod: IRModule, known: Mapping[str, Type], group: Sequence[str]) -> bool:
    """Whether ``@name`` and the types of the functions it refers to are unchanged."""
    note = mod.settled.get(name)
    if note is None or note.function is not mod.functions[name]:
        return False
    if note.definitions is not mod.type_definitions:
        return False
    return all(known.get(c) == type_ for c, type_ in note.globals.items() if c not in group)


# Kinds of nodes whose types depend on those of their operands alone.
_checked_type = attrgetter("checked_type")
_PLAIN = frozenset((Call, Constant, Function, Tuple, TupleGetItem, Var))


def _is_typed(fn: Function, declared: Type) -> bool:
    """Whether a pass has typed all nodes of ``fn``, which refers to no other function."""
    found = fn.checked_type
    if not isinstance(found, FuncType) or not isinstance(declared, FuncType):
        return False
    if declared.arg_types != found.arg_types or fn.ret_type not in (None, found.ret_type):
        return False
    nodes = list(post_order(fn))
    if not _PLAIN.issuperset(map(type, nodes)) or any(
            type_ is None for type_ in map(_checked_type, nodes)):
        return False
    # Another type may name a data type that is not defined.
    return all(type(node.annotation or node.checked_type) is TensorType
               for node in nodes if type(node) is Var)


def _type_of(fn: Function) -> Type:
    return ERROR if fn.checked_type is None else fn.checked_type


def infer_expr(
    expr: Expr, definitions: Mapping[str, TypeData] | None = None, *, trust: bool = False
) -> Expr:
    """A single ``expr``, typed; its free variables must be annotated or typed.

    ``definitions`` are the data types of its constructors. ``trust`` accepts the types of typed
    nodes, so that only new nodes cost time. Raises
    ``TypeInferenceError``.
    """
    if trust and (known := expr.checked_type or known_result(expr)) is not None:
        return expr.with_type(known)
    part = Constraints({}, definitions, trust=trust)
    try:
        part.collect(expr)
        rebuilt = _finish(part)
    except RecursionError:
        raise _too_deep() from None
    raise_collected(part.errors)
    return rebuilt[id(expr)]


def typed_call(node: Expr) -> Expr:
    """A new call of an operator on typed operands with its type; other nodes as they are.

    An ill-typed call stays untyped: inference of the program reports it.
    """
    if type(node) is not Call or type(node.op) is not Op or node.checked_type is not None \
            or any(arg.checked_type is None for arg in node.args):
        return node
    try:
        return infer_expr(node, trust=True)
    except TypeInferenceError:
        return node


def _too_deep() -> TypeInferenceError:
    return TypeInferenceError("a type is nested too deeply",
                              expected="tuples and functions nested some hundreds deep at most",
                              help="flatten the nested tuples")


def _definition_errors(definitions: Mapping[str, TypeData]) -> Iterable[WeftError]:
    """Errors in the field types of data types."""
    for data in definitions.values():
        for constructor in data.constructors:
            found = (kind_error(t, definitions) for t in constructor.inputs)
            for error in filter(None, found):
                what = f"{error.what} (a field of {data.header}.{constructor.name})"
                yield type_error(constructor, None, what, expected=error.expected, got=error.got,
                                 help=error.help)


def _range_errors(fn: Function, name: str) -> Iterator[WeftError]:
    """Parameters that give a symbol another range than those before them."""
    ranges: dict[str, str] = {}
    for param in fn.params:
        type_ = param.annotation or param.checked_type
        dims = type_.shape if isinstance(type_, TensorType) else ()
        for symbol in sorted({s for d in dims if isinstance(d, SymDim) for s in d.symbols()}):
            known = ranges.setdefault(name_of(symbol), symbol)
            if known != symbol:
                yield type_error(
                    param, name, f"{name_of(symbol)} has two ranges", expected=known, got=symbol,
                    help="write the same range wherever the name occurs")


def _declared(fn: Function) -> Type:
    params = tuple(p.annotation or p.checked_type or IncompleteType() for p in fn.params)
    return FuncType(params, fn.ret_type or IncompleteType(), fn.type_params)


def _finish(part: Constraints) -> dict[int, Expr]:
    """Solve pending relations, and rebuild every node with a new type or a new operand."""
    part.solve()
    memo: dict[int, Expr] = {}
    if part.errors:
        return memo
    params = _parameters(part.order)
    for node in part.order:
        if id(node) in part.clean:
            memo[id(node)] = node
            continue
        type_ = part.solver.resolve(part.types[id(node)])
        if not is_complete(type_):
            part.errors.append(_unknown(node, type_, part.function))
            type_ = ERROR
        memo[id(node)] = _typed(node, type_, memo, annotate=id(node) in params)
        if id(node) in part.type_args:
            memo[id(node)] = _with_type_args(memo[id(node)], part, part.type_args[id(node)])
    return memo


def _with_type_args(call: Expr, part: Constraints, found: Sequence[Type]) -> Expr:
    """A generic call with its inferred type arguments; undetermined ones are omitted."""
    resolved = tuple(map(part.solver.resolve, found))
    if not isinstance(call, Call) or not all(map(is_complete, resolved)):
        return call
    if call.checked_type_args == resolved:
        return call
    return replace(call, checked_type_args=resolved)


def _typed(node: Expr, type_: Type, memo: Mapping[int, Expr], *, annotate: bool) -> Expr:
    if annotate and isinstance(node, Var):
        return replace(node, annotation=type_, checked_type=type_)
    old = children(node)
    parts = [memo[id(c)] for c in old]
    if node.checked_type == type_ and all(a is b for a, b in zip(old, parts, strict=True)):
        return node
    return rebuild(node, parts, checked_type=type_)


def _parameters(nodes: Iterable[Expr]) -> set[int]:
    """Parameters of functions; as in Relay, they get annotations."""
    return {id(p) for node in nodes if isinstance(node, Function) for p in node.params}


def _unknown(node: Expr, type_: Type, function: str | None) -> WeftError:
    return type_error(node, function, f"the type of {describe(node)} cannot be inferred",
                      expected="a complete type", got=type_,
                      help="annotate it: %x: Tensor[(..), float32]")


def _call_order(callees: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Groups of functions that call each other, callees before callers (Tarjan 1972)."""
    if len(callees) == 1:
        return [list(callees)]
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: list[str] = []
    is_open: set[str] = set()
    groups: list[list[str]] = []
    for root in callees:
        work = [(root, iter(callees[root]))] if root not in index else []
        while work:
            name, rest = work[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                open_.append(name)
                is_open.add(name)
            for callee in rest:
                if callee not in index:
                    work.append((callee, iter(callees[callee])))
                    break
                if callee in is_open:
                    low[name] = min(low[name], index[callee])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    group = open_[open_.index(name) :]
                    del open_[open_.index(name) :]
                    is_open.difference_update(group)
                    groups.append(group)
    return groups


def _callees(name: str, mod: IRModule) -> list[str]:
    """The functions of ``mod`` that ``@name`` refers to, in order."""
    note = mod.settled.get(name)
    if note is not None and note.function is mod.functions[name]:
        return [c for c in note.globals if c in mod.functions]
    names = (node.name for node in post_order(mod.functions[name]) if isinstance(node, GlobalVar))
    return [c for c in dict.fromkeys(names) if c in mod.functions]
