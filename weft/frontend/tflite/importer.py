"""Import of a TensorFlow Lite model as a typed program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.frontend.common.typed import tensor_type
from weft.frontend.common.user_converters import typed_whole
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.frontend.tflite import converters as _converters  # noqa: F401 - fills the table
from weft.frontend.tflite.coverage import HANDLES, check_coverage, place_of
from weft.frontend.tflite.inputs import input_types, names_of
from weft.frontend.tflite.model import Model, Operator, Subgraph, Tensor
from weft.frontend.tflite.node import Body, Node, Operand, Value, quantized
from weft.frontend.tflite.registry import CONVERTERS
from weft.frontend.tflite.sizes import evaluated
from weft.frontend.tflite.state import Variables
from weft.ir.expr import Constant, Expr, Function, Tuple, Var
from weft.ir.module import IRModule
from weft.ir.span import Span
from weft.ir.typing.infer import infer_type
from weft.support.allocation import allocation_budget
from weft.support.errors import (
    InternalError,
    InvalidModelError,
    UnsupportedModelError,
    WeftError,
)

Shapes = Mapping[str, Sequence[object] | None]
# What converters of weft raise for operands and options of a damaged model that do not fit.
_CONTRADICTIONS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
_OWN = frozenset(CONVERTERS.find(name) for name in CONVERTERS.names()
                 if name not in CONVERTERS.of_users())
_MOST_OPERATORS = 1_000_000
_MOST_CALLS = 100
_SUFFIX = "/next"


def import_model(model: Model, shapes: Shapes, signature: str | None) -> IRModule:
    """See ``weft.frontend.tflite.from_tflite``."""
    with allocation_budget():
        return infer_type(ModelImporter(model).module(shapes, signature))


def first_values(model: Model, shapes: Shapes) -> dict[str, np.ndarray]:
    """The first values of the variables of a model, by name."""
    with allocation_budget():
        importer = ModelImporter(model)
        importer.module(shapes, None)
        return {name: importer.variables.first[name] for name in importer.variables.parameters
                if name in importer.variables.first}


class ModelImporter:
    """Converts the subgraphs of one model; ``variables`` are its state."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.variables = Variables()
        self._budget = _MOST_OPERATORS
        self._depth = 0

    def module(self, shapes: Shapes, name: str | None) -> IRModule:
        """The program of a signature, not yet typed as a whole."""
        signature = self.model.signature(name)
        check_coverage(self.model, signature.subgraph)
        graph = self.model.subgraphs[signature.subgraph]
        inputs = names_of(graph, graph.inputs, signature.inputs)
        types = input_types(graph, inputs, shapes, self.model.source)
        params = tuple(Var(n, t, span=Span(self.model.source, node=n), checked_type=t)
                       for n, t in zip(inputs, types, strict=True))
        results = self.call(signature.subgraph, params)
        outputs = names_of(graph, graph.outputs, signature.outputs)
        span = Span(self.model.source)
        values = [size_data(r, span) if isinstance(r, ShapeValue) else r for r in results]
        return self._closed(params, inputs, values, outputs)

    def _closed(self, params: tuple[Var, ...], inputs: Sequence[str], values: list[Expr],
                outputs: Sequence[str]) -> IRModule:
        """The module with inputs and outputs for the variables."""
        variables = self.variables
        assigned = sorted(variables.assigned)
        whole = [*values, *(variables.current[name] for name in assigned)]
        names = (*outputs, *(name + _SUFFIX for name in assigned))
        state = dict(variables.parameters)
        params = (*params, *state.values())
        attrs: dict[str, Any] = {"input_names": (*inputs, *state), "output_names": names}
        constant = [n for n in state if n not in assigned and n in variables.first]
        if constant:
            attrs["read_only"] = tuple(constant)
        if assigned:
            attrs["state"] = {name + _SUFFIX: name for name in assigned}
        if not whole:
            raise InvalidModelError("the model has no outputs", where=self.model.source)
        body = whole[0] if len(whole) == 1 else Tuple(tuple(whole))
        return IRModule({"main": Function(params, body)}, attrs=attrs)

    def call(self, index: int, arguments: Sequence[Value]) -> list[Value]:
        """The results of a subgraph, whose operators are converted anew."""
        if not 0 <= index < len(self.model.subgraphs):
            raise InvalidModelError(f"the model has no subgraph {index}", where=self.model.source)
        graph = self.model.subgraphs[index]
        if len(arguments) != len(graph.inputs):
            raise InvalidModelError(f"subgraph {index} takes other inputs", where=self.model.source,
                                    expected=str(len(graph.inputs)), got=str(len(arguments)))
        self._depth += 1
        if self._depth > _MOST_CALLS:
            raise UnsupportedModelError("subgraphs call each other too deeply",
                                        where=self.model.source,
                                        expected=f"at most {_MOST_CALLS} calls in each other")
        try:
            return Scope(self, graph, index).run(arguments)
        finally:
            self._depth -= 1

    def size(self, index: int) -> int:
        """The number of operators of a subgraph."""
        return len(self.model.subgraphs[index].operators)

    def spend(self, span: Span) -> None:
        """Count an operator; ``UnsupportedModelError`` for too many."""
        self._budget -= 1
        if self._budget < 0:
            raise UnsupportedModelError("the model is too large with all subgraphs inlined",
                                        expected=f"at most {_MOST_OPERATORS} operators", where=span)


class Scope:
    """Converts one call of a subgraph."""

    def __init__(self, importer: ModelImporter, graph: Subgraph, index: int) -> None:
        self._importer, self._graph, self._index = importer, graph, index
        self._values: dict[int, Operand] = {}

    def run(self, arguments: Sequence[Value]) -> list[Value]:
        """The outputs for ``arguments``, as they are stored."""
        span = Span(self._importer.model.source)
        for tensor, value in zip(self._graph.inputs, arguments, strict=True):
            self._values[tensor] = Operand(value, self._graph.tensors[tensor], span)
        for position, operator in enumerate(self._graph.operators):
            self._convert(position, operator)
        return [self._operand(index, span).value for index in self._graph.outputs]

    def _operand(self, index: int, span: Span) -> Operand:
        if index in self._values:
            return self._values[index]
        info = self._graph.tensors[index]
        found = Operand(self._known(info, index, span), info, span)
        if not info.is_variable:
            self._values[index] = found
        return found

    def _known(self, info: Tensor, index: int, span: Span) -> Value:
        """The value of a constant or a variable."""
        if info.load is not None and info.dtype is not None:
            try:
                return Constant(info.load(), span=Span(self._importer.model.source,
                                                       node=info.name))
            except (ValueError, TypeError) as error:
                raise InvalidModelError(f"the constant {info.name!r} is damaged", where=span,
                                        got=str(error)) from None
        if info.is_variable and info.dtype is not None:
            return self._importer.variables.tensor(f"{info.name or 'variable'}_{index}", info, span)
        raise InvalidModelError(f"tensor {info.name or index!r} is read before it is computed",
                                where=span)

    def _convert(self, position: int, operator: Operator) -> None:
        place = place_of(self._graph, operator, self._index, position)
        span = Span(self._importer.model.source, node=place)
        self._importer.spend(span)
        operands = tuple(None if i < 0 else self._operand(i, span) for i in operator.inputs)
        results = tuple(self._graph.tensors[i] for i in operator.outputs if i >= 0)
        node = Node(operator.name, span, operands, results, operator.options, operator.custom,
                    self._body, self._importer.variables)
        made = self._guarded(node)
        kept = [i for i in operator.outputs if i >= 0]
        if len(made) < len(kept):
            raise node.fail("too many results", expected=str(len(made)), got=str(len(kept)))
        for index, value in zip(kept, made, strict=False):
            self._values[index] = self._stored(node, value, self._graph.tensors[index])

    def _body(self, index: int) -> Body:
        return lambda arguments: self._importer.call(index, arguments)

    def _stored(self, node: Node, value: Value, info: Tensor) -> Operand:
        """The operand of a result, quantized as the tensor is."""
        if isinstance(value, ShapeValue) or info.type in HANDLES:
            return Operand(value, info, node.span)
        found = tensor_type(value).dtype
        if info.quantization is not None and found.is_float:
            operand = Operand(quantized(node.cast(value, "float32"), info, node.span), info,
                              node.span)
        else:
            operand = Operand(value, info, node.span)
        if tensor_type(operand.value).dtype != info.dtype:  # type: ignore[arg-type]
            raise node.fail(f"the result {info.name!r} has another type", expected=str(found),
                            got=info.type.lower())
        return operand

    def _guarded(self, node: Node) -> Sequence[Value]:
        """The results of the converter; errors get the place of the operator."""
        try:
            return self._run_converter(node)
        except WeftError as error:
            raise node.placed(error) from None
        except _CONTRADICTIONS as error:
            if CONVERTERS.find(node.op) not in _OWN:
                raise
            raise node.fail("the operator contradicts itself", got=str(error)) from error

    def _run_converter(self, node: Node) -> Sequence[Value]:
        converter = CONVERTERS.find(node.op)
        if converter is None:
            raise InternalError(f"{node.op} passed the coverage check", where=node.span)
        if any(o is not None and isinstance(o.value, ShapeValue) for o in node.operands):
            known = evaluated(node)
            if known is not None:
                return (known,)
        made = converter(node)
        results = (made,) if isinstance(made, (Expr, ShapeValue)) else tuple(made)
        return [typed_whole(r) if isinstance(r, Expr) else r for r in results]
