"""The factors of a call: which dimensions of its operands and results can be cut together.

Nobody writes a rule of sharding for an operator. Its tensor expression says which index of a
result reads which index of an operand, so dimensions that one loop variable walks belong together:
a *factor* (Shardy's term). A factor with dimensions of results is cut through, without
communication; a factor of reduction axes alone leaves partial results, which an all-reduce
combines. A dimension that is read in windows (``i * stride + k - padding``) belongs to the factor
of ``i``, with the halo that a part of it needs (``windows``). A variable that the expression uses
otherwise (a position in a window or a table, a comparison) blocks its factor. So does an index of
an operand that is no such expression.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from weft import te
from weft.ir import Call, Expr, Op, TensorType, Tuple, TupleType, Type
from weft.op.collective import REDUCTION_OF
from weft.op.cut_axes import tensor_types
from weft.support.dataclass import dataclass
from weft.te.tensor import ComputeOp, Operation, PlaceholderOp
from weft.tir import expr as x
from weft.tir.expr import PrimExpr, Var, int_value
from weft.tir.visitor import children, mentions
from weft.transform.analysis.graph import is_reshape
from weft.transform.sharding.windows import Padding, Window, affine, padding_of

# A dimension of operand or result number n, counting the tensors of tuples.
Place: TypeAlias = tuple[int, int]
# What walks: a dimension of a tensor of the expression, or a reduction variable.
_Node: TypeAlias = "tuple[Any, int]"


@dataclass(frozen=True, slots=True)
class Factor:
    """Dimensions that are cut together; the number of parts divides ``divisor``.

    ``reduction`` names how partial results are combined, where no result has the dimension.
    ``windows`` are the operands that need borders of the neighbours' parts.
    """

    operands: tuple[Place, ...]
    results: tuple[Place, ...]
    divisor: int
    reduction: str | None = None
    windows: tuple[Window, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexMaps:
    """The factors of a call, and why the other dimensions of operands must be whole."""

    factors: tuple[Factor, ...]
    blocked: dict[Place, str]

    def factor_of(self, place: Place) -> Factor | None:
        return next((f for f in self.factors if place in f.operands), None)


def tree_of(type_: Type | None, parts: Iterator[Expr]) -> Expr:
    """The next tensors of ``parts``, in the tuples of a type."""
    if isinstance(type_, TupleType):
        return Tuple(tuple(tree_of(t, parts) for t in type_.fields))
    return next(parts)


def index_maps(call: Call) -> IndexMaps:
    """The factors of a typed call of an operator on tensors of known sizes."""
    operands = [t for arg in call.args for t in tensor_types(arg.checked_type)]
    if is_reshape(call) and len(operands) == 1:
        (result,) = tensor_types(call.checked_type)
        return IndexMaps(tuple(_reshape_factors(operands[0].concrete_shape,
                                                result.concrete_shape)), {})
    if isinstance(call.op, Op) and (rule := call.op.hook("cut_axes")) is not None:
        return _stated(rule(call), operands)
    built = tensors_of(call)
    if built is None:
        return _nothing(operands, "the operator has no tensor expression")
    inputs, outputs = built
    maps = _Maps(outputs)
    try:
        for operation in stages(outputs):
            maps.visit(operation)
    except _OpaqueError as opaque:
        return _nothing(operands, str(opaque))
    return maps.found(inputs)


def tensors_of(call: Call) -> tuple[list[te.Tensor], list[te.Tensor]] | None:
    """The placeholders and results of the tensor expression of a call."""
    if not isinstance(call.op, Op) or call.op.compute is None:
        return None
    inputs: list[te.Tensor] = []

    def placeholder(type_: Type | None) -> Any:
        if isinstance(type_, TupleType):
            return tuple(map(placeholder, type_.fields))
        (tensor,) = tensor_types(type_)
        inputs.append(te.placeholder(tensor.concrete_shape, tensor.dtype, name=f"x{len(inputs)}"))
        return inputs[-1]

    made = call.op.compute(*(placeholder(a.checked_type) for a in call.args), call.attrs)
    return inputs, list(made) if isinstance(made, tuple) else [made]


def stages(outputs: Sequence[te.Tensor]) -> list[Operation]:
    """The operations that the results need, producers first."""
    found: dict[Operation, None] = {}
    pending = [(t.op, False) for t in reversed(outputs)]
    while pending:
        operation, is_done = pending.pop()
        if is_done:
            found[operation] = None
        elif operation not in found:
            pending.append((operation, True))
            pending += [(t.op, False) for t in te.input_tensors(operation)]
    return list(found)


def _stated(rule: Iterable[tuple[tuple[Place, ...], tuple[Place, ...]]],
            operands: Sequence[TensorType]) -> IndexMaps:
    """The factors that the record of an operator states."""
    factors = tuple(Factor(places, results, operands[places[0][0]].concrete_shape[places[0][1]])
                    for places, results in rule if places)
    known = {place for factor in factors for place in factor.operands}
    return IndexMaps(tuple(f for f in factors if f.divisor > 1), {
        place: why for place, why in _nothing(operands, "the operator needs it whole")
        .blocked.items() if place not in known})


def _nothing(operands: Sequence[TensorType], why: str) -> IndexMaps:
    return IndexMaps((), {(n, d): why for n, t in enumerate(operands) for d in range(t.ndim)})


def _reshape_factors(before: Sequence[int], after: Sequence[int]) -> Iterator[Factor]:
    """The leading dimensions of each group whose sizes have the same product on both sides."""
    i = j = 0
    while i < len(before) and j < len(after):
        while before[i] == 1 and i + 1 < len(before):
            i += 1
        while after[j] == 1 and j + 1 < len(after):
            j += 1
        first, second = (i, j)
        left, right = before[i], after[j]
        while left != right and (i + 1 < len(before) if left < right else j + 1 < len(after)):
            if left < right:
                i += 1
                left *= before[i]
            else:
                j += 1
                right *= after[j]
        divisor = math.gcd(before[first], after[second])
        if left == right and divisor > 1:
            yield Factor(((0, first),), ((0, second),), divisor)
        i, j = i + 1, j + 1


@dataclass(frozen=True, slots=True)
class _Reads:
    """A dimension is read from ``stride * i + low`` to ``stride * i + high``; ``walker`` is i."""

    walker: _Node
    stride: int
    low: int
    high: int

    def shifted(self, by: int) -> _Reads:
        return _Reads(self.walker, self.stride, self.low - by, self.high - by)

    def joined(self, other: _Reads) -> _Reads:
        return _Reads(self.walker, self.stride, min(self.low, other.low),
                      max(self.high, other.high))


class _OpaqueError(Exception):
    """Loops that tensor expressions do not describe."""


class _Maps:
    """Unites what one variable walks, over the stages of an expression."""

    def __init__(self, outputs: Sequence[te.Tensor]) -> None:
        self._outputs = outputs
        self._paddings: dict[te.Tensor, Padding] = {}
        self._windows: dict[_Node, list[_Reads]] = {}
        self._parent: dict[_Node, _Node] = {}
        self._size: dict[_Node, int] = {}
        self._limit: dict[_Node, int] = {}  # of roots: what the number of parts divides
        self._blocked: dict[_Node, str] = {}
        self._reductions: dict[_Node, tuple[Operation, str]] = {}
        self._place: dict[Var, _Node] = {}
        self._readers: dict[Operation, list[ComputeOp]] = {}

    def visit(self, operation: Operation) -> None:
        if isinstance(operation, PlaceholderOp):
            return
        if not isinstance(operation, ComputeOp):
            raise _OpaqueError("its loops are written by hand")
        padding = padding_of(operation)
        if padding is not None and operation.outputs[0] not in self._outputs:
            self._paddings[operation.outputs[0]] = padding
            for d, width in enumerate(padding.widths):
                inner, outer = self._dim(padding.source, d), self._dim(operation.outputs[0], d)
                if width == (0, 0):
                    self._unite(outer, inner)
            return
        for d, axis in enumerate(operation.axis):
            self._place[axis.var] = self._dim(operation.outputs[0], d)
            for other in operation.outputs[1:]:
                self._unite(self._place[axis.var], self._dim(other, d))
        for axis in operation.reduce_axis:
            node = self._place[axis.var] = (axis.var, -1)
            self._new(node, int_value(axis.extent) or 1)
            if int_value(axis.min) != 0:
                self._block(node, "it reduces a part of the dimension")
        for body in operation.body:
            self._visit_body(operation, body)
        for tensor in te.input_tensors(operation):
            self._readers.setdefault(tensor.op, []).append(operation)

    def _visit_body(self, operation: ComputeOp, body: PrimExpr) -> None:
        if isinstance(body, x.Reduce):
            kind = REDUCTION_OF.get(type(body.combiner.result[0]))
            for axis in body.axes:
                self._reductions[axis.var, -1] = (
                    operation, kind if kind is not None and len(body.source) == 1 else "")
            for part in (*body.source, body.condition):
                self._uses(part)
        else:
            self._uses(body)

    def _uses(self, e: PrimExpr) -> None:
        pending, seen = [e], set()
        while pending:
            node = pending.pop()
            if isinstance(node, Var):
                if node in self._place:
                    self._block(self._place[node], "the result depends on the position")
            elif isinstance(node, x.ProducerLoad):
                for d, index in enumerate(node.indices):
                    pending += self._index(node.producer, d, index)
            elif node not in seen:
                seen.add(node)
                pending += children(node)

    def _index(self, tensor: te.Tensor, d: int, index: PrimExpr) -> list[PrimExpr]:
        """Record one index of a load; the expressions in it whose variables are used otherwise."""
        dim, size = self._dim(tensor, d), int_value(tensor.shape[d]) or 1
        if isinstance(index, Var) and index in self._place and self._extent(index) == size:
            self._unite(self._place[index], dim)
            return []
        major = self._major(index, size)
        if major is not None:
            self._unite(self._place[major], dim)
            return [v for v in _vars(index) if v is not major]
        if isinstance(index, (x.FloorDiv, x.FloorMod)) and isinstance(index.a, Var) \
                and index.a in self._place and (by := int_value(index.b)):
            extent = self._extent(index.a)
            if extent % by == 0 and isinstance(index, x.FloorDiv) and size * by == extent:
                self._unite(self._place[index.a], dim)
                return []
            if extent % by == 0 and isinstance(index, x.FloorMod) and size == by:
                self._constrain(self._place[index.a], extent // by)
                self._block(dim, "elements repeat along the dimension")
                return []
        if size > 1:
            walker = self._walk(dim, index)
            if walker is not None:
                return [v for v in _vars(index) if v is not walker]
            self._block(dim, "it is read at other positions than those of a loop")
        return [index]

    def _walk(self, dim: _Node, index: PrimExpr) -> Var | None:
        """The variable whose steps the windows of an affine index take, which is recorded."""
        found = affine(index, self._place.__contains__)
        if found is None or not any(c > 0 for c in found[0].values()):
            return None
        terms, low = found
        padding = self._paddings.get(dim[0])
        size = self._size[dim] - (sum(padding.widths[dim[1]]) if padding is not None else 0)
        walker = max(terms, key=lambda v: (terms[v] * self._extent(v) == size,
                                           terms[v] * self._extent(v)))
        stride, high = terms.pop(walker), low
        for v, step in terms.items():
            reach = step * (self._extent(v) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        self._windows.setdefault(dim, []).append(_Reads(self._place[walker], stride, low, high))
        return walker

    def _major(self, index: PrimExpr, size: int) -> Var | None:
        """``v`` of ``v * B + rest`` where the rest is below B and v walks the whole dimension."""
        if not isinstance(index, x.Add):
            return None
        for product, rest in ((index.a, index.b), (index.b, index.a)):
            if isinstance(product, x.Mul) and isinstance(product.a, Var) \
                    and product.a in self._place and (by := int_value(product.b)):
                fits = isinstance(rest, Var) and rest in self._place and self._extent(rest) <= by
                if fits and self._extent(product.a) * by == size and not mentions(rest, product.a):
                    return product.a
        return None

    def _extent(self, var: Var) -> int:
        return self._size[self._place[var]]

    def _dim(self, tensor: te.Tensor, d: int) -> _Node:
        node = (tensor, d)
        self._new(node, int_value(tensor.shape[d]) or 1)
        return node

    def _new(self, node: _Node, size: int) -> None:
        if node not in self._parent:
            self._parent[node] = node
            self._size[node] = self._limit[node] = size

    def _root(self, node: _Node) -> _Node:
        while self._parent[node] != node:
            node = self._parent[node]
        return node

    def _unite(self, a: _Node, b: _Node) -> None:
        first, second = self._root(a), self._root(b)
        if first != second:
            self._parent[second] = first
            self._constrain(first, self._limit[second])
            if second in self._blocked:
                self._block(first, self._blocked[second])

    def _constrain(self, node: _Node, divisor: int) -> None:
        root = self._root(node)
        self._limit[root] = math.gcd(self._limit[root], divisor)

    def _block(self, node: _Node, why: str) -> None:
        self._blocked.setdefault(self._root(node), why)

    def found(self, inputs: Sequence[te.Tensor]) -> IndexMaps:
        outputs = self._outputs
        windows = self._windowed(inputs)
        seen = {self._root((inputs[w.operand], w.dim)) for each in windows.values() for w in each}
        factors, blocked = [], {}
        for root, nodes in self._members().items():
            windowed = tuple(windows.get(root, ()))
            own = tuple(_places(inputs, nodes))
            operands = (*own, *((w.operand, w.dim) for w in windowed))
            results = tuple(_places(outputs, nodes))
            why = self._blocked.get(root) or self._refusal(nodes, operands, results, outputs)
            if why is None:
                reduction = None if results else self._kind(nodes)
                factors.append(Factor(operands, results, self._limit[root], reduction, windowed))
            elif root not in seen:
                blocked.update(dict.fromkeys(operands, why))
        return IndexMaps(tuple(f for f in factors if f.divisor > 1 and f.operands), blocked)

    def _members(self) -> dict[_Node, list[_Node]]:
        members: dict[_Node, list[_Node]] = {}
        for node in self._parent:
            members.setdefault(self._root(node), []).append(node)
        return members

    def _windowed(self, inputs: Sequence[te.Tensor]) -> dict[_Node, list[Window]]:
        """The windows of each factor; those that are not cut with a halo block their dimension."""
        members, merged = self._members(), dict[_Node, _Reads]()
        padded: dict[_Node, tuple[int, float]] = {}
        for (tensor, d), reads in self._windows.items():
            padding = self._paddings.get(tensor)
            source = self._root((tensor, d) if padding is None else self._dim(padding.source, d))
            before, fill = (0, 0.0) if padding is None else (padding.widths[d][0], padding.fill)
            first = merged.get(source, reads[0].shifted(before))
            for one in (first, *(r.shifted(before) for r in reads)):
                is_same = self._root(one.walker) == self._root(first.walker)
                if not is_same or one.stride != first.stride \
                        or padded.setdefault(source, (before, fill)) != (before, fill):
                    self._block(source, "different windows read it")
                first = first.joined(one)
            merged[source] = first
        for tensor, padding in self._paddings.items():
            for d, width in enumerate(padding.widths):
                if width != (0, 0) and self._root((tensor, d)) != (tensor, d):
                    self._block(self._dim(padding.source, d), "it is padded")
        found: dict[_Node, list[Window]] = {}
        for source, reads in merged.items():
            places = tuple(_places(inputs, members[source]))
            root = self._root(reads.walker)
            if not places or reads.stride * self._size[reads.walker] != self._size[source]:
                self._block(source, "its windows are not as many as fit equal parts")
            elif any(_places(self._outputs, members[source])) or source == root \
                    or any(n in self._reductions for n in members[source]):
                self._block(source, "it is read in windows and otherwise")
            if source in self._blocked:
                self._block(root, self._blocked[source])
                continue
            found.setdefault(root, []).extend(
                Window(n, d, reads.stride, reads.low, reads.high, padded[source][1])
                for n, d in places)
        return found

    def _kind(self, nodes: list[_Node]) -> str:
        return next(self._reductions[n][1] for n in nodes if n in self._reductions)

    def _refusal(self, nodes: list[_Node], operands: Sequence[Place], results: Sequence[Place],
                 outputs: Sequence[te.Tensor]) -> str | None:
        """Why a factor cannot be cut, ``None`` if it can."""
        if any(len({n for n, _ in side}) < len(side) for side in (operands, results)):
            return "two dimensions of one tensor have the same loop"
        reduced = [self._reductions[n] for n in nodes if n in self._reductions]
        if results:
            if {n for n, _ in results} != set(range(len(outputs))):
                return "one of the results lacks the dimension"
            return "it is reduced and kept" if reduced else None
        if not reduced:
            return "no result has the dimension"
        if len({kind for _, kind in reduced}) > 1 or not reduced[0][1]:
            return "its reduction has no all-reduce"
        if len({op for op, _ in reduced}) > 1 or not self._ends(reduced[0][0], outputs):
            return "the reduced value is used further"
        return None

    def _ends(self, operation: Operation, outputs: Sequence[te.Tensor]) -> bool:
        """Whether the results are those of ``operation``, or only casts of them."""
        if len(outputs) > 1:
            return False
        while operation is not outputs[0].op:
            readers = self._readers.get(operation, [])
            if len(readers) != 1 or not _is_cast(readers[0]):
                return False
            operation = readers[0]
        return True


def _is_cast(operation: ComputeOp) -> bool:
    body = operation.body[0]
    inner = body.value if isinstance(body, x.Cast) else body
    return len(operation.body) == 1 and isinstance(inner, x.ProducerLoad) \
        and inner.indices == tuple(a.var for a in operation.axis)


def _places(tensors: Sequence[te.Tensor], nodes: Sequence[_Node]) -> Iterator[Place]:
    wanted = set(nodes)
    for number, tensor in enumerate(tensors):
        for d in range(tensor.ndim):
            if (tensor, d) in wanted:
                yield number, d


def _vars(e: PrimExpr) -> list[Var]:
    return [n for n in (e, *children(e)) if isinstance(n, Var)] + \
        [v for c in children(e) if not isinstance(c, Var) for v in _vars(c)]
