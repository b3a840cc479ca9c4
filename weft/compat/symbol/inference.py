"""Shapes and element types of the entries of a graph, forward and backward (NNVM's passes).

A shape is a tuple with 0 for an unknown size, or ``None`` where even the rank is unknown. (NNVM
has no scalars and writes an unknown shape as an empty tuple; here that is a scalar.) Forward, the
type relation of the operator decides, with ``?`` for sizes that are not known. Backward, a slot
``FInferShape`` of the operator does: ``(attributes, shapes of inputs, shapes of results) ->`` both,
completed. Facts flow until none is new.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from weft.compat.symbol.attribute_text import value_of
from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.slots import get_attr, registered
from weft.ir import ANY, DType, Expr, TensorType, TupleType, Type, Var, infer_expr
from weft.support.errors import TypeInferenceError, WeftError

PartialShape: TypeAlias = "tuple[int, ...] | None"
Shapes: TypeAlias = "list[PartialShape]"
Dtypes: TypeAlias = "list[str | None]"
Key: TypeAlias = "tuple[Node, int]"


def merged_shape(first: PartialShape, second: PartialShape) -> PartialShape:
    """The shape with the known sizes of both; ``ValueError`` if they contradict each other."""
    if first is None or second is None:
        return second if first is None else first
    if len(first) != len(second) or any(a and b and a != b
                                        for a, b in zip(first, second, strict=True)):
        raise ValueError(f"{first} and {second}")
    return tuple(a or b for a, b in zip(first, second, strict=True))


def is_known(shape: PartialShape) -> bool:
    """Whether rank and all sizes are known."""
    return shape is not None and 0 not in shape


class Inference:
    """The facts of each entry of a graph; ``run`` completes them.

    ``shapes`` and ``dtypes`` are given by the names of variables, besides their attributes
    ``__shape__`` and ``__dtype__``. Raises ``TypeInferenceError`` for contradictions.
    """

    def __init__(self, heads: Sequence[NodeEntry],
                 shapes: Mapping[str, Sequence[int] | None] | None = None,
                 dtypes: Mapping[str, str] | None = None) -> None:
        self.nodes = list(walk(heads))
        self.shapes: dict[Key, PartialShape] = {}
        self.dtypes: dict[Key, DType | None] = {}
        self.symbolic: dict[str, tuple[object, ...]] = {}  # symbolic shapes of variables
        self._changed = False
        given_shapes, given_dtypes = dict(shapes or {}), dict(dtypes or {})
        for node in self.nodes:
            if not node.is_variable:
                continue
            own = node.attrs.get("__shape__")
            if own is not None:
                self._learn(node, 0, value_of(own, tuple))
            shape = given_shapes.get(node.name)
            if shape is not None:
                self._learn(node, 0, tuple(shape))
            dtype = given_dtypes.get(node.name, node.attrs.get("__dtype__"))
            if dtype is not None:
                self.dtypes[node, 0] = DType.of(dtype)

    def run(self) -> Inference:
        """Complete the facts: forward, then backward, until neither adds any."""
        self._changed = True
        while self._changed:
            self._changed = False
            for node in self.nodes:
                self._forward(node)
            for node in reversed(self.nodes):
                self._backward(node)
        return self

    def shape(self, node: Node, index: int = 0) -> PartialShape:
        return self.shapes.get((node, index))

    def dtype(self, node: Node, index: int = 0) -> DType | None:
        return self.dtypes.get((node, index))

    def unknown_variables(self) -> list[str]:
        """The names of variables whose shapes are not determined."""
        return [n.name for n in self.nodes if n.is_variable and not is_known(self.shape(n))]

    def _learn(self, node: Node, index: int, shape: PartialShape) -> None:
        before = self.shapes.get((node, index))
        try:
            after = merged_shape(before, shape)
        except ValueError as error:
            raise TypeInferenceError(f"contradicting shapes of {node.name!r}", where=node.span,
                                     got=str(error)) from None
        if after != before:
            self.shapes[node, index] = after
            self._changed = True

    def _learn_dtype(self, node: Node, index: int, dtype: DType) -> None:
        before = self.dtypes.get((node, index))
        if before is None:
            self.dtypes[node, index] = dtype
            self._changed = True
        elif before != dtype:
            raise TypeInferenceError(f"contradicting dtypes of {node.name!r}", where=node.span,
                                     got=f"{before} and {dtype}")

    def _forward(self, node: Node) -> None:
        if node.op is None:
            return
        args: list[Expr] = []
        for position, entry in enumerate(node.inputs):
            shape = self.shape(entry.node, entry.index)
            if shape is None:
                return
            dtype = self.dtype(entry.node, entry.index) or self._of_others(node, position) \
                or _usual_dtype(node, position)
            dims = tuple(size or ANY for size in shape)
            args.append(Var(entry.node.name, TensorType(dims, dtype)))
        result = self._type_of(node, args)
        parts = result.fields if isinstance(result, TupleType) else (result,)
        known = all(self.dtype(e.node, e.index) is not None for e in node.inputs)
        for index, part in enumerate(parts):
            if isinstance(part, TensorType):
                self._learn(node, index, tuple(d if isinstance(d, int) else 0 for d in part.shape))
                if known:
                    self._learn_dtype(node, index, part.dtype)

    def _type_of(self, node: Node, args: Sequence[Expr]) -> Type | None:
        assert node.op is not None
        if node.op.types is not None:
            return node.op.types(node.params, args)
        expr = node.op.lower(node.params, args)
        try:
            return infer_expr(expr, trust=True).checked_type
        except TypeInferenceError as error:
            if any(not is_known(self.shape(e.node, e.index)) for e in node.inputs):
                return None  # the relation needs a size that is not known yet
            raise TypeInferenceError(f"{node.name!r}: {error.what}", where=node.span,
                                     expected=error.expected, got=error.got,
                                     help=error.help) from None

    def _backward(self, node: Node) -> None:
        if node.op is None:
            return
        slot: ShapeRule | None = get_attr(node.op, "FInferShape")
        ins = [self.shape(e.node, e.index) for e in node.inputs]
        outs = [self.shape(node, i) for i in range(node.num_outputs)]
        if slot is not None:
            try:
                ins, outs = slot(node.params, ins, outs)
            except (ValueError, WeftError) as error:
                raise TypeInferenceError(f"contradicting shapes at {node.name!r}", where=node.span,
                                         got=str(error)) from None
            for entry, shape in zip(node.inputs, ins, strict=True):
                self._learn(entry.node, entry.index, shape)
            for index, shape in enumerate(outs):
                self._learn(node, index, shape)
        self._dtypes_backward(node)

    def _dtypes_backward(self, node: Node) -> None:
        """Operands without a dtype take that of the others, if their usual dtypes are equal."""
        if node.op is None or node.op.types is not None:
            return
        rule: DtypeRule | None = registered(node.op, "FInferType")
        if rule is not None:
            self._by_rule(node, rule)
            return
        for i, entry in enumerate(node.inputs):
            if self.dtype(entry.node, entry.index) is not None:
                continue
            alike = self._of_others(node, i)
            if alike is None and len(node.inputs) == 1 and node.op is not None \
                    and get_attr(node.op, "FInferShape") is same_shapes:
                alike = self.dtype(node, 0)
            if alike is not None:
                self._learn_dtype(entry.node, entry.index, alike)

    def _by_rule(self, node: Node, rule: DtypeRule) -> None:
        ins = [_name(self.dtype(e.node, e.index)) for e in node.inputs]
        outs = [_name(self.dtype(node, i)) for i in range(node.num_outputs)]
        ins, outs = rule(node.params, ins, outs)
        keys = [*((e.node, e.index) for e in node.inputs), *((node, i) for i in range(len(outs)))]
        for (source, index), dtype in zip(keys, (*ins, *outs), strict=True):
            if dtype is not None:
                self._learn_dtype(source, index, DType.of(dtype))

    def _of_others(self, node: Node, position: int) -> DType | None:
        """The dtype of another input whose usual dtype is the same."""
        usual = _usual_dtype(node, position)
        known = (self.dtype(e.node, e.index) for i, e in enumerate(node.inputs)
                 if _usual_dtype(node, i) == usual)
        return next((d for d in known if d is not None), None)


# (attributes, shapes of inputs, shapes of results) -> both, completed; ValueError where they
# contradict each other.
ShapeRule: TypeAlias = "Callable[[Any, Shapes, Shapes], tuple[Shapes, Shapes]]"

# The same for names of dtypes, the slot FInferType: None is unknown.
DtypeRule: TypeAlias = "Callable[[Any, Dtypes, Dtypes], tuple[Dtypes, Dtypes]]"


def _name(dtype: DType | None) -> str | None:
    return None if dtype is None else dtype.name


def same_shapes(_attrs: object, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
    """The rule of elementwise operators: inputs and results have one shape."""
    shape: PartialShape = None
    for other in (*ins, *outs):
        shape = merged_shape(shape, other)
    return [shape] * len(ins), [shape] * len(outs)


def _usual_dtype(node: Node, position: int) -> DType:
    """The dtype of an input in the first test case of the operator; float32 without one."""
    op = None if node.op is None else node.op.op
    dtypes: Iterable[str] = op.cases[0].dtypes if op is not None and op.cases else ("float32",)
    found = list(dtypes)
    return DType.of(found[min(position, len(found) - 1)])
