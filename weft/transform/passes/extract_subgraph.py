"""Extracts a part of a program: feed any tensor, fetch any tensor.

TensorFlow does the same for a step (``RewriteGraphForExecution``): a tensor that is fed becomes a
parameter, a tensor that is fetched becomes a result, and nodes that the results do not need are
dropped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from weft import ir
from weft.ir.substitution import rewrite_dims
from weft.support.errors import InvalidInputError, PassError
from weft.support.suggestion import did_you_mean


def extract_subgraph(mod: ir.IRModule, fetches: Sequence[str],
                     feeds: Mapping[str, Sequence[object] | None] | None = None) -> ir.IRModule:
    """The program that computes the tensors ``fetches`` from the inputs and from ``feeds``.

    ``feeds`` are names of tensors that become inputs, with a shape, or ``None`` for the shape of
    the tensor. Names are those of ``tensors_of``. The inputs of the result are the inputs whose
    values or sizes are needed, in their order, then ``feeds``.

    Raises ``InvalidInputError`` if nothing is fetched, for an unknown name (with the closest
    names), for a name that is given twice, and for a name that is both fed and fetched (other names
    of a fed tensor have its value); ``TypeInferenceError`` for a shape that does not fit.
    """
    values = _without_lets(mod["main"].body)
    known = _tensors(mod, values)
    fetchable = {**known, **_outputs(mod, values)}  # an output may have the name of an input
    fed = dict(feeds or {})
    _check(mod, fetchable, fetches, known, fed)
    replaced = {known[name]: _parameter(name, known[name], shape) for name, shape in fed.items()}
    results = _with_parameters([fetchable[name] for name in fetches], replaced)
    body = results[0] if len(results) == 1 else ir.Tuple(tuple(results))
    used = set(ir.post_order(body))
    used |= _that_give_sizes(mod, used, replaced.values())
    given = {var: name for name, var in _inputs(mod).items() if var in used}
    given |= {replaced[known[name]]: name for name in fed}
    main = ir.Function(tuple(given), body, span=mod["main"].span)
    attrs = {"input_names": tuple(given.values()), "output_names": tuple(fetches)}
    return ir.infer_type(dataclasses.replace(
        mod, functions={**mod.functions, "main": main}, attrs=attrs, settled={}, named={}))


def _that_give_sizes(mod: ir.IRModule, used: Collection[ir.Expr], fed: Iterable[ir.Expr]
                     ) -> set[ir.Expr]:
    """Inputs whose values no result needs, but whose shapes have symbols of its attributes."""
    missing = {name for node in used if isinstance(node, ir.Call) for name in _symbols(node.attrs)}
    inputs = _inputs(mod).values()
    for var in (*(var for var in inputs if var in used), *fed):
        missing -= _symbols(_shape(var))
    found: set[ir.Expr] = set()
    for var in inputs:
        if missing & (own := _symbols(_shape(var))):
            found.add(var)
            missing -= own
    return found


def _shape(var: ir.Expr) -> ir.Shape:
    return var.checked_type.shape if isinstance(var.checked_type, ir.TensorType) else ()


def _symbols(sizes: Any) -> set[str]:
    """The symbols of a shape or of attributes."""
    found: set[str] = set()

    def note(size: ir.SymDim) -> ir.SymDim:
        found.update(size.symbols())
        return size

    rewrite_dims(sizes, note)
    return found


def tensors_of(mod: ir.IRModule) -> dict[str, ir.Expr]:
    """The tensors of ``main`` by name.

    An imported model names them (``IRModule.named``). Otherwise they are the parameters, the
    variables of ``let``, and the calls of operators in the order of execution: ``nn.relu``,
    ``nn.relu_1``, and so on. Names of variables come first.
    """
    return _tensors(mod, _without_lets(mod["main"].body))


def tensors_and_body(mod: ir.IRModule) -> tuple[dict[str, ir.Expr], ir.Expr]:
    """``tensors_of``, and the body of ``main`` that these nodes are part of, without ``let``."""
    values = _without_lets(mod["main"].body)
    return _tensors(mod, values), values[mod["main"].body]


def _tensors(mod: ir.IRModule, values: Mapping[ir.Expr, ir.Expr]) -> dict[str, ir.Expr]:
    """``tensors_of``, where ``values`` are the nodes of the body without variables of ``let``."""
    found: dict[str, ir.Expr] = {**_inputs(mod)}
    if mod.named:
        return {**mod.named, **found}
    for node in values:
        if isinstance(node, ir.Let) and isinstance(node.value.checked_type, ir.TensorType):
            found.setdefault(node.var.name, values[node.value])
    for node, value in values.items():
        if isinstance(node, ir.Call) and isinstance(node.op, ir.Op) \
                and isinstance(node.checked_type, ir.TensorType):
            found[_free(node.op.name, found)] = value
    return found


def _inputs(mod: ir.IRModule) -> dict[str, ir.Var]:
    return dict(zip(ir.input_names(mod), mod["main"].params, strict=True))


def _outputs(mod: ir.IRModule, values: Mapping[ir.Expr, ir.Expr]) -> dict[str, ir.Expr]:
    body = values[mod["main"].body]
    names = ir.output_names(mod)
    if isinstance(body, ir.Tuple):
        return dict(zip(names, body.fields, strict=True))
    if not isinstance(body.checked_type, ir.TupleType):
        return {names[0]: body}
    fields = enumerate(body.checked_type.fields)
    return {names[i]: ir.TupleGetItem(body, i, checked_type=type_) for i, type_ in fields}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    number = 1
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _without_lets(body: ir.Expr) -> dict[ir.Expr, ir.Expr]:
    """Every node outside of functions, with the variables of ``let`` replaced by their values."""
    nodes = list(ir.post_order(body, enter=_is_outside))
    bound: dict[ir.Expr, list[ir.Var]] = {}
    for node in nodes:
        if isinstance(node, ir.Let):
            bound.setdefault(node.value, []).append(node.var)
        elif isinstance(node, ir.RefCreate):
            raise PassError("parts of a program with references cannot run alone", where=node.span,
                            help="their order would be lost")
    memo: dict[ir.Expr, ir.Expr] = {}
    for node in nodes:
        if isinstance(node, ir.Let):
            memo[node] = memo[node.body]
        elif node not in memo:
            parts = ir.children(node) if _is_outside(node) else ()
            memo[node] = ir.replace_children(node, [memo[c] for c in parts]) if parts else node
        pending = [node]
        while pending:  # a variable may be the value of another one
            known = pending.pop()
            for var in bound.get(known, ()):
                memo[var] = memo[known]
                pending.append(var)
    return memo


def _is_outside(node: ir.Expr) -> bool:
    return not isinstance(node, ir.Function)


def _parameter(name: str, value: ir.Expr, shape: Sequence[object] | None) -> ir.Var:
    type_ = value.checked_type
    if not isinstance(type_, ir.TensorType):
        raise InvalidInputError(f"{name!r} is not a tensor and cannot be fed", got=type_)
    if shape is not None:
        type_ = ir.TensorType(ir.as_shape(shape), type_.dtype)
    return ir.Var(name, type_, span=value.span, checked_type=type_)


def _with_parameters(results: Sequence[ir.Expr],
                     replaced: Mapping[ir.Expr, ir.Var]) -> list[ir.Expr]:
    memo: dict[ir.Expr, ir.Expr] = dict(replaced)
    for result in results:
        for node in ir.post_order(result, enter=lambda e: e not in memo):
            if node not in memo:
                memo[node] = ir.rebuild(node, [memo[c] for c in ir.children(node)])
    return [memo[result] for result in results]


def _check(mod: ir.IRModule, results: Mapping[str, ir.Expr], fetches: Sequence[str],
           known: Mapping[str, ir.Expr], feeds: Mapping[str, object]) -> None:
    if not fetches:
        raise InvalidInputError("nothing to run", expected="the name of a tensor to compute")
    for names, table in ((fetches, results), (feeds, known)):
        for name in names:
            if name not in table:
                raise unknown_tensor(name, table, mod)
    named: dict[ir.Expr, str] = {}
    for name in feeds:
        other = named.setdefault(known[name], name)
        if other != name:
            raise InvalidInputError("a tensor is fed more than once", got=f"{other!r} and {name!r}")
    for name in fetches:
        if name in feeds:  # another name of the tensor has the value that is fed
            raise InvalidInputError(f"{name!r} is both fed and fetched")
    repeated = sorted({name for name in fetches if list(fetches).count(name) > 1})
    if repeated:
        raise InvalidInputError("a tensor is fetched more than once", got=", ".join(repeated))


def unknown_tensor(name: str, table: Mapping[str, ir.Expr], mod: ir.IRModule) -> InvalidInputError:
    """The error of a name that is not in ``table``, with the closest names."""
    ports = (f"inputs {', '.join(map(repr, ir.input_names(mod)))}, "
             f"outputs {', '.join(map(repr, ir.output_names(mod)))}, or an inner tensor")
    return InvalidInputError(
        f"the model has no tensor {name!r}", expected=ports,
        help=did_you_mean(name, table, "`weft inspect MODEL --tensors` lists the names"))
