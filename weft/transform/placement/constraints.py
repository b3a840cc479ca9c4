"""The device constraints of a program, by Relay's rules (``PlanDevices``).

The arguments and the result of an operator call are on the device of the call. So are, together,
parameters and arguments, results of functions, branches, tuples and their fields, references, and
fields of data. Devices may differ only at borders: the annotations ``on_device`` and
``device_copy``, reads of the inputs of ``main``, and conditions, which the host reads. Constants
and inputs are copied to each device that reads them. Unlike in Relay, the results of ``main`` stay
on the device that computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any, TypeAlias

from weft import ir
from weft.op.annotation import OnDeviceAttrs, barrier, on_device
from weft.op.device import DeviceCopyAttrs, device_copy
from weft.op.gradients import attrs_of
from weft.runtime.device import HOST
from weft.support.dataclass import dataclass
from weft.transform.placement.domains import Domains, Origin

# The domains of a value: one, or for a function those of its parameters and of its result.
Parts: TypeAlias = "tuple[int, ...]"
# A function type with more domains than this is on one device as a whole.
_MAX_PARTS = 256
_INPUT, _CONSTANT = None, -1  # the source of copies of floating values, instead of a domain
DEVICE_KINDS = "device_kinds"  # the hook that lists the kinds of devices that run an operator


@dataclass(frozen=True, slots=True)
class Border:
    """An operand that may be on another device than its user; ``source`` is ``None`` for an input.

    If ``late``, the operand comes from a free region, to which placement by cost assigns a device
    later. A border at a result of ``main`` needs a copy only if nothing else determines the device
    of a region.
    """

    source: int | None
    destination: int
    late: bool = False
    is_result: bool = False


@dataclass(slots=True)
class Constraints:
    """Constraints of a module: the domains of its expressions, its borders, and the calls it runs.

    ``borders`` are by user and by position in ``children(user)``. ``copies`` are the domains of the
    source (``None`` for an input) and of the destination of each ``device_copy`` in the program,
    ``results`` the borders between the bodies and the results of annotations. ``aliases`` map
    variables of ``let``, and fields of literal tuples, to their values.
    """

    domains: Domains = field(default_factory=Domains)
    parts: dict[ir.Expr, Parts] = field(default_factory=dict)
    borders: dict[tuple[ir.Expr, int], Border] = field(default_factory=dict)
    calls: list[tuple[ir.Call, int]] = field(default_factory=list)
    copies: dict[ir.Call, tuple[int | None, int]] = field(default_factory=dict)
    results: dict[ir.Call, Border] = field(default_factory=dict)
    aliases: dict[ir.Expr, ir.Expr] = field(default_factory=dict)

    @property
    def all_borders(self) -> Iterator[Border]:
        """The borders of operands of calls, and of annotations."""
        yield from (one for one in self.borders.values() if not one.is_result)
        yield from self.results.values()

    def device_of(self, expr: ir.Expr) -> ir.VirtualDevice:
        """The specification of a value; for a function, that of its result."""
        parts = self.parts.get(self.aliases.get(expr, expr))
        return ir.VirtualDevice() if not parts else self.domains.device(parts[-1])


def constraints_of(mod: ir.IRModule, *, soft: bool = False) -> Constraints:
    """The constraints of a typed module. Raises ``TargetError`` if these contradict each other.

    With ``soft``, an annotation may name a device that does not run the operator.
    """
    return _Walk(mod, soft=soft).run()


class _Walk:
    """Visits every node after its operands.

    ``floating`` values do not determine the device of their users: constants, inputs, and the
    results of annotations. They map to the domain that they are copied from.
    """

    def __init__(self, mod: ir.IRModule, *, soft: bool) -> None:
        self.mod = mod
        self.found = Constraints(Domains(soft=soft))
        self.domains = self.found.domains
        self.floating: dict[ir.Expr, int | None] = {}
        self.aliases = self.found.aliases
        self.scoped: set[ir.Expr] = set()  # values that may refer to variables of an inner ``let``
        self.globals: dict[str, Parts] = {}
        self.results: set[ir.Expr] = set()

    def run(self) -> Constraints:
        main = self.mod.functions.get("main")
        if main is not None:
            self.floating.update((param, _INPUT) for param in main.params)
            self.results = _result_tuples(main)
        for function in self.mod.functions.values():
            bound = _bound_by_let(function)
            for node in ir.post_order(function):
                self._visit(node)
                for var in bound.get(node, ()):  # before the body, which reads the variable
                    if var in self.found.parts:  # a recursive function
                        self._unify(self.parts(var), self.parts(node))
                    self._alias(var, node)
        for name, parts in self.globals.items():
            self._unify(parts, self.parts(self.mod[name]))
        return self.found

    def _visit(self, node: ir.Expr) -> None:
        rule = _RULES.get(type(node))
        if rule is not None:
            rule(self, node)

    # Values.

    def resolved(self, expr: ir.Expr) -> ir.Expr:
        """The value of a variable of ``let`` or of a field of a literal tuple."""
        return self.aliases.get(expr, expr)

    def parts(self, expr: ir.Expr) -> Parts:
        """The domains of a value, created at the first use."""
        expr = self.resolved(expr)
        known = self.found.parts.get(expr)
        if known is None:
            if isinstance(expr, ir.GlobalVar):
                known = self.globals.get(expr.name)
            if known is None:
                known = self._fresh(expr.checked_type)
            if isinstance(expr, ir.GlobalVar):
                self.globals[expr.name] = known
            self.found.parts[expr] = known
        return known

    def operand(self, user: ir.Expr, position: int, value: ir.Expr) -> Parts:
        """The domains in which ``user`` reads an operand."""
        value = self.resolved(value)
        if value not in self.floating:
            if value in self.results:
                self.results.discard(value)
                self._visit(value)
            return self.parts(value)
        fresh = self._fresh(value.checked_type)
        source = self.floating[value]
        if source != _CONSTANT:
            self.found.borders[user, position] = Border(source, fresh[-1])
        return fresh

    def domain(self, user: ir.Expr, position: int, value: ir.Expr) -> int:
        """The one domain in which ``user`` reads an operand."""
        return self._joined(self.operand(user, position, value))

    def _fresh(self, type_: ir.Type | None) -> Parts:
        return tuple(self.domains.fresh() for _ in range(_count_parts(type_)))

    def _unify(self, first: Parts, second: Parts) -> None:
        if len(first) != len(second):  # a generic function, or a function in a tuple
            first, second = (self._joined(first),), (self._joined(second),)
        for one, other in zip(first, second, strict=True):
            self.domains.unify(one, other)

    def _joined(self, parts: Parts) -> int:
        for one in parts[1:]:
            self.domains.unify(parts[0], one)
        return parts[0]

    # Rules, one for each kind of node that relates domains.

    def constant(self, node: ir.Constant) -> None:
        self.floating[node] = _CONSTANT

    def call(self, call: ir.Call) -> None:
        if isinstance(call.op, ir.Op):
            self._call_op(call, call.op)
        elif isinstance(call.op, ir.Constructor):
            result = self._joined(self.parts(call))
            for position, arg in enumerate(call.args, 1):
                self.domains.unify(self.domain(call, position, arg), result)
        else:
            wanted = self.operand(call, 0, call.op)
            given = [self.operand(call, n, arg) for n, arg in enumerate(call.args, 1)]
            flat = tuple(one for parts in given for one in parts) + self.parts(call)
            self._unify(wanted, flat)

    def _call_op(self, call: ir.Call, op: ir.Op) -> None:
        result = self._joined(self.parts(call))
        if op is on_device:
            self._annotation(call, result)
            return
        if op is device_copy:
            self._copy(call, result)
            return
        read = call.args[:1] if op is barrier else call.args  # it reads no element of ``after``
        for position, arg in enumerate(read):
            self.domains.unify(self.domain(call, position, arg), result)
        self.found.calls.append((call, result))
        kinds = op.hook(DEVICE_KINDS)
        if kinds is not None:
            self.domains.runs_on(result, kinds, Origin(op.name, call.span))

    def _annotation(self, call: ir.Call, result: int) -> None:
        attrs = attrs_of(call, OnDeviceAttrs)
        device = ir.VirtualDevice.parse(attrs.device)
        origin = origin_of(call)
        value = self.resolved(call.args[0])
        source = self.floating.get(value)
        says = bool(attrs.colocate) or (attrs.constrain_body and not device.is_unconstrained)
        if value not in self.floating or (says and source not in (_CONSTANT, _INPUT)):
            source = self.domain(call, 0, value)
            if attrs.constrain_body:
                self.domains.constrain(source, device, origin)
            if attrs.colocate:
                self.domains.colocate(source, attrs.colocate, origin)
        if not attrs.constrain_result:
            self.floating[call] = source  # each user may be on another device
        else:
            self.domains.constrain(result, device, origin)
            if attrs.constrain_body and source is not None and source != _CONSTANT:
                self.domains.unify(source, result)
            elif source != _CONSTANT:
                self.found.results[call] = Border(source, result)

    def _copy(self, call: ir.Call, result: int) -> None:
        attrs = attrs_of(call, DeviceCopyAttrs)
        origin = origin_of(call)
        value = self.resolved(call.args[0])
        source = None
        if value not in self.floating:
            source = self._joined(self.parts(value))
            self.domains.constrain(source, ir.VirtualDevice.parse(attrs.source), origin)
        self.domains.constrain(result, ir.VirtualDevice.parse(attrs.destination), origin)
        self.found.copies[call] = source, result

    def tuple_(self, node: ir.Tuple) -> None:
        if node in self.results:
            self.parts(node)
            for position, value in enumerate(node.fields):
                self._leave(node, position, value)
            return
        if node.fields and all(self.floating.get(self.resolved(one)) == _CONSTANT
                               for one in node.fields):
            self.floating[node] = _CONSTANT
            return
        result = self._joined(self.parts(node))
        for position, value in enumerate(node.fields):
            self.domains.unify(self.domain(node, position, value), result)

    def field(self, node: ir.TupleGetItem) -> None:
        value = self.resolved(node.tuple_value)
        if isinstance(value, ir.Tuple) and node.tuple_value not in self.scoped:
            self._alias(node, value.fields[node.index])
        elif value in self.floating:
            self.floating[node] = self.floating[value]
        else:
            self._unify(self.parts(node), self.parts(value))

    def function(self, node: ir.Function) -> None:
        params = tuple(one for param in node.params for one in self._of_param(param))
        self._unify(self.parts(node), params + self._result(node, len(node.params), node.body))

    def _of_param(self, param: ir.Var) -> Parts:
        # Parameters of ``main`` are on no device.
        return self._fresh(param.checked_type) if param in self.floating else self.parts(param)

    def _result(self, user: ir.Expr, position: int, value: ir.Expr) -> Parts:
        """The domains of the result of a function; results of ``main`` have their readers'."""
        if user is not self.mod.functions.get("main"):
            return self.operand(user, position, value)
        self._leave(user, position, value)
        return self._fresh(value.checked_type)

    def _leave(self, user: ir.Expr, position: int, value: ir.Expr) -> None:
        """Mark ``value`` as a result of ``main``."""
        value = self.resolved(value)
        source = self.floating.get(value)
        if value not in self.floating and isinstance(value.checked_type, ir.TensorType):
            source = self._joined(self.parts(value))
        if source not in (_INPUT, _CONSTANT):
            self.found.borders[user, position] = Border(source, self.domains.fresh(),
                                                        is_result=True)

    def let(self, node: ir.Let) -> None:
        self._alias(node, node.body)

    def _alias(self, name: ir.Expr, value: ir.Expr) -> None:
        """Make ``name`` an alias of ``value``, which has been visited."""
        if isinstance(name, ir.Let) or value in self.scoped:
            self.scoped.add(name)
        value = self.resolved(value)
        if value in self.floating:
            self.floating[name] = self.floating[value]
        self.aliases[name] = value

    def if_(self, node: ir.If) -> None:
        # The host reads the condition, whichever device computes it.
        read = self.domains.fresh()
        self.domains.constrain(read, ir.VirtualDevice.of(HOST), Origin("a condition", node.span))
        condition = self.resolved(node.cond)
        source = self.floating.get(condition)
        if condition not in self.floating:
            source = self._joined(self.parts(condition))
        if source not in (_CONSTANT, _INPUT):
            self.found.borders[node, 0] = Border(source, read, late=True)
        result = self.parts(node)
        self._unify(result, self.operand(node, 1, node.true_branch))
        self._unify(result, self.operand(node, 2, node.false_branch))

    def match(self, node: ir.Match) -> None:
        data = self.domain(node, 0, node.data)
        positions = {id(child): n for n, child in enumerate(ir.children(node))}
        for clause in node.clauses:
            for var in ir.pattern_vars(clause.lhs):
                self.domains.unify(data, self._joined(self.parts(var)))
            self._unify(self.parts(node),
                        self.operand(node, positions[id(clause.rhs)], clause.rhs))

    def reference(self, node: ir.RefCreate | ir.RefRead) -> None:
        value = ir.children(node)[0]
        self.domains.unify(self._joined(self.parts(node)), self.domain(node, 0, value))

    def write(self, node: ir.RefWrite) -> None:
        self.domains.unify(self.domain(node, 0, node.ref), self.domain(node, 1, node.value))


_RULES: dict[type, Callable[[_Walk, Any], None]] = {
    ir.Constant: _Walk.constant, ir.Call: _Walk.call, ir.Tuple: _Walk.tuple_,
    ir.TupleGetItem: _Walk.field,
    ir.Function: _Walk.function, ir.Let: _Walk.let, ir.If: _Walk.if_, ir.Match: _Walk.match,
    ir.RefCreate: _Walk.reference, ir.RefRead: _Walk.reference, ir.RefWrite: _Walk.write,
}


def origin_of(call: ir.Call) -> Origin:
    """The text of an annotation in messages."""
    shown = ", ".join(f"{name}={value!r}" for name, value in call.attrs.non_default_items())
    name = call.op.name if isinstance(call.op, ir.Op) else "call"
    return Origin(f"{name}({shown})", call.span)


def _bound_by_let(function: ir.Function) -> dict[ir.Expr, list[ir.Var]]:
    """The values of the variables of ``let``."""
    found: dict[ir.Expr, list[ir.Var]] = {}
    for node in ir.post_order(function):
        if isinstance(node, ir.Let):
            found.setdefault(node.value, []).append(node.var)
    return found


def _result_tuples(main: ir.Function) -> set[ir.Expr]:
    """The tuples that only collect the results of ``main``."""
    found: set[ir.Expr] = set()
    pending = [main.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ir.Let):
            pending.append(node.body)
        elif isinstance(node, ir.Tuple) and node not in found:
            found.add(node)
            pending.extend(node.fields)
    return found


def _count_parts(type_: ir.Type | None) -> int:
    """The number of domains of a value of a type."""
    count = 0
    pending = [type_]
    while pending:
        one = pending.pop()
        if isinstance(one, ir.FuncType) and count + len(pending) < _MAX_PARTS:
            pending.append(one.ret_type)
            pending.extend(one.arg_types)
        else:
            count += 1
    return count if count <= _MAX_PARTS else 1
