"""Typing of algebraic data types: constructors, and the patterns of a match."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from weft.ir import expr, types
from weft.ir.typing.kinds import undefined
from weft.ir.typing.report import counted
from weft.ir.typing.solver import TypeSolver, UnifyError, substitute_type
from weft.support.errors import TypeInferenceError

_WILD = expr.PatternWildcard()


def definition_of(header: types.GlobalTypeVar,
                  definitions: Mapping[str, expr.TypeData]) -> expr.TypeData:
    """The data type named ``header``; raises ``TypeInferenceError`` if it is undefined."""
    try:
        return definitions[header.name]
    except KeyError:
        raise undefined(header.name, definitions) from None


def constructor_type(constructor: expr.Constructor,
                     definitions: Mapping[str, expr.TypeData]) -> types.FuncType:
    """The type of ``constructor`` as a generic function."""
    data = definition_of(constructor.belongs_to, definitions)
    return types.FuncType(constructor.inputs, types.TypeCall(data.header, data.type_vars),
                          data.type_vars)


def instantiate(generic: types.FuncType, type_args: Sequence[types.Type] = ()) -> types.FuncType:
    """``generic`` with its type parameters replaced by ``type_args``, or by incomplete types."""
    if not generic.type_params:
        return generic
    given = type_args or [types.IncompleteType() for _ in generic.type_params]
    values: dict[types.TypeVar, types.Type] = dict(zip(generic.type_params, given, strict=True))
    args = tuple(substitute_type(a, values) for a in generic.arg_types)
    return types.FuncType(args, substitute_type(generic.ret_type, values))


def bind_pattern(pattern: expr.Pattern, type_: types.Type, solver: TypeSolver,
                 definitions: Mapping[str, expr.TypeData],
                 bind_var: Callable[[expr.Var, types.Type], None]) -> None:
    """Infer the types of the variables of ``pattern`` from the type of the matched value.

    Raises ``TypeInferenceError`` if the pattern cannot match such a value.
    """
    pending: list[tuple[expr.Pattern, types.Type]] = [(pattern, type_)]
    while pending:
        current, known = pending.pop()
        if isinstance(current, expr.PatternVar):
            bind_var(current.var, known)
        elif isinstance(current, expr.PatternTuple):
            fields = tuple(types.IncompleteType() for _ in current.patterns)
            _unify_pattern(solver, known, types.TupleType(fields), "a tuple pattern")
            pending.extend(zip(current.patterns, fields, strict=True))
        elif isinstance(current, expr.PatternConstructor):
            name = current.constructor.name
            made = instantiate(constructor_type(current.constructor, definitions))
            if len(made.arg_types) != len(current.patterns):
                raise TypeInferenceError(
                    f"the pattern {name} takes {counted(len(made.arg_types), 'field')}",
                    expected=made,
                    got=counted(len(current.patterns), "field"),
                    help="write _ for fields that are not used",
                )
            _unify_pattern(solver, known, made.ret_type, f"the pattern {name}")
            pending.extend(zip(current.patterns, made.arg_types, strict=True))


def _unify_pattern(solver: TypeSolver, known: types.Type, asked: types.Type, what: str) -> None:
    try:
        solver.unify(known, asked)
    except UnifyError:
        raise TypeInferenceError(
            f"{what} cannot match a value of this type", expected=solver.resolve(known),
            got=solver.resolve(asked), help="the pattern must have the type of the matched value"
        ) from None


def missing_case(clauses: Sequence[expr.Clause],
                 definitions: Mapping[str, expr.TypeData]) -> str | None:
    """A value that no clause matches, as pattern text; ``None`` if the clauses are exhaustive."""
    return next(uncovered_cases(clauses, definitions), None)


def uncovered_cases(
    clauses: Sequence[expr.Clause], definitions: Mapping[str, expr.TypeData]
) -> Iterator[str]:
    """Pattern texts that together describe all values that no clause matches.

    Usefulness of a wildcard row after the given rows (Maranget, "Warnings for pattern matching",
    2007). Patterns are written by hand and short, which bounds the recursion.
    """
    for witness in _uncovered([[clause.lhs] for clause in clauses], 1, definitions):
        yield witness[0]


def _uncovered(
    rows: list[list[expr.Pattern]], width: int, definitions: Mapping[str, expr.TypeData]
) -> Iterator[list[str]]:
    if width == 0:
        if not rows:
            yield []
        return
    heads = [row[0] for row in rows]
    tuples = [h for h in heads if isinstance(h, expr.PatternTuple)]
    named = [h.constructor for h in heads if isinstance(h, expr.PatternConstructor)]
    if tuples:
        arity = len(tuples[0].patterns)
        for rest in _uncovered(_specialise(rows, None, arity), arity + width - 1, definitions):
            yield [f"({', '.join(rest[:arity])})", *rest[arity:]]
    elif named:
        for constructor in definition_of(named[0].belongs_to, definitions).constructors:
            arity = len(constructor.inputs)
            narrowed = _specialise(rows, constructor, arity)
            for rest in _uncovered(narrowed, arity + width - 1, definitions):
                inner = f"({', '.join(rest[:arity])})" if arity else ""
                yield [f"{constructor.name}{inner}", *rest[arity:]]
    else:
        for rest in _uncovered([row[1:] for row in rows], width - 1, definitions):
            yield ["_", *rest]


def _specialise(
    rows: list[list[expr.Pattern]], constructor: expr.Constructor | None, arity: int
) -> list[list[expr.Pattern]]:
    """The rows that can match ``constructor`` (``None``: a tuple), with its fields as columns."""
    kept: list[list[expr.Pattern]] = []
    for head, *rest in rows:
        if isinstance(head, expr.PatternTuple):
            kept.append([*head.patterns, *rest])
        elif not isinstance(head, expr.PatternConstructor):
            kept.append([*[_WILD] * arity, *rest])
        elif constructor is not None and head.constructor.name == constructor.name:
            kept.append([*head.patterns, *rest])
    return kept
