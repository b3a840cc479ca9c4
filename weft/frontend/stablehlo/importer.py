"""Import of a StableHLO module as a typed program; calls between its functions are inlined."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

from weft.frontend.common.typed import tensor_type
from weft.frontend.common.user_converters import typed_whole
from weft.frontend.onnx.shape_value import ShapeValue, size_data
from weft.frontend.stablehlo import converters as _converters
from weft.frontend.stablehlo.coverage import RETURNS, check_coverage
from weft.frontend.stablehlo.inputs import input_ports, output_names_of
from weft.frontend.stablehlo.locations import Places
from weft.frontend.stablehlo.node import Body, Node, Value
from weft.frontend.stablehlo.parser import parse_module
from weft.frontend.stablehlo.registry import CONVERTERS, converter_name
from weft.frontend.stablehlo.sizes import evaluated
from weft.frontend.stablehlo.syntax import HloFunction, HloModule, HloType, Operation, Region
from weft.frontend.stablehlo.types import dtype_of
from weft.ir.expr import Expr, Function, Tuple, Var
from weft.ir.module import IRModule
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_type
from weft.support.allocation import allocation_budget
from weft.support.errors import (
    InternalError,
    InvalidModelError,
    UnsupportedModelError,
    WeftError,
)

# What the converters of weft raise for operands, attributes and regions that do not fit, which a
# verified module has not.
_CONTRADICTIONS = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
_OWN = frozenset(CONVERTERS.find(name) for name in CONVERTERS.names()
                 if name not in CONVERTERS.of_users())
_MOST_OPERATIONS = 2_000_000
_MOST_CALLS = 100
# What runs functions and branches of the module, and takes sizes as they are.
_TAKES_SIZES = ("func.call", "stablehlo.composite", "stablehlo.case", "stablehlo.if",
                "stablehlo.optimization_barrier", "@shape_assertion",
                "stablehlo.dynamic_reshape", "stablehlo.dynamic_broadcast_in_dim",
                "stablehlo.dynamic_iota", "stablehlo.dynamic_pad", "stablehlo.dynamic_gather",
                "stablehlo.real_dynamic_slice", "stablehlo.dynamic_slice",
                "stablehlo.dynamic_update_slice", "stablehlo.dynamic_conv")
_ELEMENTWISE_IN_REGIONS = ("stablehlo.constant", "chlo.constant", "func.call",
                           "stablehlo.reshape", "stablehlo.broadcast_in_dim")


def import_text(text: str, shapes: Mapping[str, Sequence[object] | None],
                source: str = "<stablehlo>",
                sizes: Sequence[Sequence[str]] = ()) -> IRModule:
    """The typed program of a module's function ``main``.

    ``shapes`` are those of inputs by name; ``sizes`` names the sizes that the text leaves open.
    """
    module = parse_module(text, source)
    places = Places(module, text, source)
    check_coverage(module, places, source)
    ports = input_ports(module, places, shapes, sizes)
    params = tuple(Var(name, type_, span=span, checked_type=type_) for name, type_, span in ports)
    main = module.functions["main"]
    with allocation_budget():
        results = Importer(module, places).call(main, params)
    outputs = [Importer.tensor(value, places.span(main.body.operations[-1])) for value in results]
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    attrs = {"input_names": tuple(p.name for p in params), "output_names": output_names_of(main)}
    return infer_type(IRModule({"main": Function(params, body)}, attrs=attrs))


class Importer:
    """Converts the functions of one module."""

    def __init__(self, module: HloModule, places: Places) -> None:
        self.module, self.places = module, places
        self._budget = _MOST_OPERATIONS
        self._depth = 0
        self._sizes: dict[int, int] = {}

    @staticmethod
    def tensor(value: Value, span: Any) -> Expr:
        """A value as an expression; sizes become data."""
        return size_data(value, span) if isinstance(value, ShapeValue) else value

    def call(self, function: HloFunction, arguments: Sequence[Value], *, lifted: bool = False
             ) -> list[Value]:
        """The results of a function of the module, whose operations are converted anew."""
        if len(arguments) != len(function.parameters):
            raise InvalidModelError(f"a call of {function.name} has the wrong number of arguments",
                                    expected=str(len(function.parameters)),
                                    got=str(len(arguments)))
        self._depth += 1
        if self._depth > _MOST_CALLS:
            raise UnsupportedModelError("functions call each other too deeply",
                                        expected=f"at most {_MOST_CALLS} calls in each other",
                                        got=f"one more in {function.name}")
        names = (p.name for p in function.parameters)
        results = self.run(function.body, dict(zip(names, arguments, strict=True)), lifted=lifted)
        self._depth -= 1
        return results

    def run(self, region: Region, values: MutableMapping[str, Value], *, lifted: bool = False
            ) -> list[Value]:
        """What a region returns. ``lifted`` regions of scalars are applied to whole tensors."""
        for operation in region.operations[:-1]:
            results = self._convert(operation, values, lifted=lifted)
            values.update(zip(operation.results, results, strict=True))
        if not region.operations:
            raise InvalidModelError("a region is empty", expected="a return at its end")
        last = region.operations[-1]
        return list(self._operands(last, values))

    def _operands(self, operation: Operation, values: Mapping[str, Value]) -> tuple[Value, ...]:
        missing = [name for name in operation.operands if name not in values]
        if missing:
            raise InvalidModelError(f"{operation.name} reads values that are not there",
                                    where=self.places.span(operation), got=", ".join(missing))
        return tuple(values[name] for name in operation.operands)

    def _convert(self, operation: Operation, values: MutableMapping[str, Value], *, lifted: bool
                 ) -> Sequence[Value]:
        self._budget -= 1
        name, span = converter_name(operation), self.places.span(operation)
        if self._budget < 0:
            raise UnsupportedModelError("the module is too large with all calls inlined",
                                        expected=f"at most {_MOST_OPERATIONS} operations",
                                        where=span)
        if lifted and name not in _ELEMENTWISE_IN_REGIONS and not _converters.is_elementwise(name):
            raise UnsupportedModelError(f"{name} in a region of scalars", where=span,
                                        expected="elementwise operations")
        operands = self._operands(operation, values)
        bodies = tuple(self._body(region, values) for region in operation.regions)
        if name in {"func.call", "stablehlo.composite"}:
            function = self._function(operation)
            bodies = (Body(function.body,
                           lambda *a, lifted=lifted: self.call(function, a, lifted=lifted),
                           self.size(function.body), values),)
        node = Node(name, span, operands, operation.attributes, operation.operand_types,
                    operation.result_types, bodies)
        results = self._guarded(node, len(operation.results))
        for result, type_ in zip(results, operation.result_types, strict=False):
            _check(node, result, type_, lifted=lifted)
        return results

    def _function(self, operation: Operation) -> HloFunction:
        name = operation.target or str(operation.attributes.get("decomposition", ""))
        found = self.module.functions.get(name.removeprefix("@"))
        if found is None:
            raise InvalidModelError(f"the module has no function {name!r}",
                                    where=self.places.span(operation),
                                    expected=", ".join(sorted(self.module.functions)))
        return found

    def _body(self, region: Region, values: MutableMapping[str, Value]) -> Body:
        def convert(*arguments: Value, lifted: bool = False) -> list[Value]:
            if len(arguments) != len(region.parameters):
                raise InvalidModelError("a region has the wrong number of arguments",
                                        expected=str(len(arguments)),
                                        got=str(len(region.parameters)))
            inner = dict(zip(region.parameters, arguments, strict=True))
            return self.run(region, ChainMap(inner, values), lifted=lifted)

        return Body(region, convert, self.size(region), values)

    def size(self, region: Region, depth: int = 0) -> int:
        """The number of operations in a region, with those of the functions that it calls."""
        if id(region) not in self._sizes:
            total = 0
            for operation in region.nested():
                total += 1
                function = self.module.functions.get(operation.target)
                if operation.name == "func.call" and function is not None and depth < _MOST_CALLS:
                    total += self.size(function.body, depth + 1)
            self._sizes[id(region)] = total
        return self._sizes[id(region)]

    def _guarded(self, node: Node, count: int) -> Sequence[Value]:
        """The results of the converter; errors get the place of the node."""
        try:
            results = self._run_converter(node)
        except WeftError as error:
            raise node.placed(error) from None
        except _CONTRADICTIONS as error:
            if CONVERTERS.find(node.op) not in _OWN:
                raise
            if any(None in t.shape for t in (*node.operand_types, *node.types)):
                raise UnsupportedModelError(f"{node.op} needs fixed sizes", where=node.span,
                                            got=str(error)) from error
            raise node.fail("the operation contradicts itself", got=str(error)) from error
        if len(results) != count:
            raise node.fail("the operation has another number of results", got=str(count),
                            expected=str(len(results)))
        return results

    def _run_converter(self, node: Node) -> Sequence[Value]:
        converter = CONVERTERS.find(node.op)
        if node.op in RETURNS:
            raise node.fail("a return before the end of its region")
        if converter is None:
            raise InternalError(f"{node.op} passed the coverage check", where=node.span)
        operands = node.operands
        if any(isinstance(value, ShapeValue) for value in operands):
            known = evaluated(node)
            if known is not None:
                return (known,)
            if node.op not in _TAKES_SIZES:
                operands = tuple(self.tensor(value, node.span) for value in operands)
        made = converter(node, *operands)
        results = (made,) if isinstance(made, (Expr, ShapeValue)) else tuple(made)
        return [typed_whole(r) if isinstance(r, Expr) else r for r in results]


def _check(node: Node, result: Value, type_: HloType, *, lifted: bool) -> None:
    """Raise ``InvalidModelError`` for a result of another type than the text says."""
    if not isinstance(result, Expr) or not isinstance(result.checked_type, TensorType):
        return
    found = tensor_type(result)
    same = found.dtype == dtype_of(type_) and (lifted or (
        found.ndim == len(type_.shape) and all(
            told is None or not isinstance(size, int) or told == size
            for told, size in zip(type_.shape, found.shape, strict=True))))
    if not same:
        raise node.fail("the result has another type than the text says", expected=str(found),
                        got=str(type_))
