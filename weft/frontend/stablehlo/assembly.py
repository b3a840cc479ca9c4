"""The forms of operations that MLIR prints in place of the generic one.

Most have one pattern: operands, ``name = value`` and words up to a colon, then types. The names of
attributes are shorter than in the generic form; ``_LONG_NAMES`` gives those of that form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from weft.frontend.stablehlo.attributes import AttributeParser, number_of
from weft.frontend.stablehlo.lexer import Token
from weft.frontend.stablehlo.syntax import HloType, Literal, Operation, Region
from weft.support.dataclass import dataclass

_LONG_NAMES: Mapping[str, Mapping[str, str]] = {
    "stablehlo.broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.dynamic_broadcast_in_dim": {"dims": "broadcast_dimensions"},
    "stablehlo.transpose": {"dims": "permutation"},
    "stablehlo.reverse": {"dims": "dimensions"},
    "stablehlo.iota": {"dim": "iota_dimension"},
    "stablehlo.dynamic_iota": {"dim": "iota_dimension"},
    "stablehlo.concatenate": {"dim": "dimension"},
    "stablehlo.get_dimension_size": {"dim": "dimension"},
    "stablehlo.set_dimension_size": {"dim": "dimension"},
    "stablehlo.pad": {"low": "edge_padding_low", "high": "edge_padding_high",
                      "interior": "interior_padding"},
    "stablehlo.dynamic_slice": {"sizes": "slice_sizes"},
    "stablehlo.fft": {"type": "fft_type", "length": "fft_length"},
    "stablehlo.rng": {"distribution": "rng_distribution"},
    "stablehlo.rng_bit_generator": {"algorithm": "rng_algorithm"},
    "stablehlo.einsum": {"config": "einsum_config"},
    "stablehlo.reduce": {"dimensions": "dimensions"},
    "stablehlo.convolution": {"dim_numbers": "dimension_numbers"},
    "stablehlo.dynamic_conv": {"dim_numbers": "dimension_numbers"},
}
_WINDOW = {"stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation",
           "rhs_dilate": "rhs_dilation", "reverse": "window_reversal"}
_PRODUCTS = ("stablehlo.dot_general", "stablehlo.dot")


@dataclass(frozen=True)
class _Items:
    """What comes before the colon of an operation."""

    operands: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    words: list[Any] = field(default_factory=list)
    bindings: list[str] = field(default_factory=list)


class CustomAssembly(AttributeParser, ABC):
    """Reads operations in the form that JAX prints."""

    def __init__(self, text: str, source: str) -> None:
        super().__init__(text, source)
        self.argument_locations: dict[str, str] = {}

    @abstractmethod
    def region(self, parameters: tuple[str, ...] = ()) -> Region:
        """A block in braces; its arguments may come from outside."""

    def custom(self, name: str, results: tuple[str, ...], offset: int) -> Operation:
        """The operation ``name``, whose name is read."""
        items = _Items()
        self._items(items, "")
        operand_types, result_types = self._signature(len(results)) if self.accept(":") else ((),
                                                                                              ())
        attributes, regions = dict(items.attributes), self._regions(name, items)
        operands = items.operands
        if name == "stablehlo.reduce":
            operands = operands[::2] + operands[1::2]
        if isinstance(items.words[0] if items.words else None, Token):
            attributes["value"] = Literal(items.words[0].text, result_types[0])
        self._name_attributes(name, attributes, items.words)
        if "applies" in items.words:
            regions = (self._applied(items.words, operand_types, offset),)
        return Operation(name, tuple(operands), results, attributes, regions, operand_types,
                         result_types, offset, self.location())

    def _items(self, items: _Items, closing: str) -> None:
        """Read operands, attributes and words up to ``closing`` or the end of the list."""
        while True:
            token, after = self.now, self.ahead()
            if closing and self.accept(closing):
                return
            if self.accept(","):
                continue
            if token.kind == "value":
                if after.kind == "=":
                    if not closing:
                        return  # the next operation
                    self.index += 2
                    items.bindings.append(token.text)
                    continue
                items.operands.append(self.take().text)
            elif token.kind == "word" and after.kind == "=":
                self.index += 2
                items.attributes[token.text] = self._value(token.text)
            elif token.kind == "word" and token.text == "init" and after.kind == ":":
                self.index += 2
            elif not self._other_item(items, token):
                return

    def _other_item(self, items: _Items, token: Token) -> bool:
        """Read a group, a word or a dictionary; whether there was one."""
        if token.kind == "(":
            self.take()
            self._items(items, ")")
        elif token.kind == "{":
            items.attributes.update(self.dictionary())
        elif token.kind == "<" and self.ahead().kind == "{":
            self.take()
            items.attributes.update(self.dictionary())
            self.expect(">")
        elif token.kind == "<":  # a sharding
            self.skip_group()
        elif token.kind == "[":
            items.words.append(self.list_attribute())
        elif token.kind == "literal":
            items.words.append(self.take())
        elif token.kind in ("word", "symbol", "string", "number") and \
                not (token.text == "loc" and self.ahead().kind == "("):
            items.words.append(self.take().text)
        else:
            return False
        return True

    def _value(self, name: str) -> Any:
        """The value of an attribute; pairs as in ``[1] x [0]`` are tuples."""
        if name == "dim_numbers":
            return self.convolution_axes()
        if self.now.kind in ("number", "string"):  # the colon behind it begins the types
            text = self.take().text
            return text.strip('"') if text.startswith('"') else number_of(text)
        value = self.attribute()
        if isinstance(value, list) and self.now.text == "x" and self.ahead().kind == "[":
            self.take()
            return value, self.attribute()
        return value

    def _signature(self, results: int) -> tuple[tuple[HloType, ...], tuple[HloType, ...]]:
        """``(t, t) -> t``, ``t, t -> t``, or types that stand for operands and results alike."""
        operands = list(self.types())
        while self.accept(","):
            operands.append(self.type())
        if self.accept("arrow"):
            return tuple(operands), self.types()
        last = operands if 1 < results == len(operands) else operands[-1:] * results
        return tuple(operands), tuple(last)

    def _regions(self, name: str, items: _Items) -> tuple[Region, ...]:
        """The regions behind the types: of ``while`` and ``reduce``."""
        if self.now.text == "attributes" and self.ahead().kind == "{":
            self.take()
            items.attributes.update(self.dictionary())
        if name == "stablehlo.while":
            names = tuple(items.bindings)
            self.expect("word", "cond")
            condition = self.region(names)
            self.expect("word", "do")
            return condition, self.region(names)
        if self.now.text == "reducer":
            self.take()
            names = self._reducer_names()
            return (self.region(names),)
        return ()

    def _reducer_names(self) -> tuple[str, ...]:
        """``(%a: t, %b: t) (%c: t, %d: t)``: first operands, then second ones."""
        pairs: list[str] = []
        while self.accept("("):
            while not self.accept(")"):
                pairs.append(self.expect("value").text)
                self.expect(":")
                self.type()
                self.location()
                self.accept(",")
        return tuple(pairs[::2] + pairs[1::2])

    def _applied(self, words: list[Any], types: tuple[HloType, ...], offset: int) -> Region:
        """The region of ``applies stablehlo.add``."""
        name = str(words[words.index("applies") + 1])
        scalar = HloType((), types[0].element if types else "")
        names, result = ("%lhs", "%rhs"), ("%applied",)
        return Region(names, (
            Operation(name, names, result, operand_types=(scalar,) * 2, result_types=(scalar,),
                      offset=offset),
            Operation("stablehlo.return", result, (), operand_types=(scalar,), offset=offset)))

    def _name_attributes(self, name: str, attributes: dict[str, Any], words: list[Any]) -> None:
        """Give the attributes the names and the form of the generic form, in place."""
        for short, long in _LONG_NAMES.get(name, {}).items():
            if short in attributes:
                attributes[long] = attributes.pop(short)
        if name in _PRODUCTS:
            attributes["dot_dimension_numbers"] = _product_axes(attributes)
        if "window" in attributes:
            window = attributes.pop("window")
            attributes.update({_WINDOW.get(k, k): v for k, v in window.items()})
        if name == "stablehlo.compare":
            attributes["comparison_direction"] = words[0] if words else ""
            attributes["compare_type"] = words[1] if len(words) > 1 else ""
        elif name == "stablehlo.slice" and words and isinstance(words[0], list):
            ranges = [part if isinstance(part, tuple) else (part, part + 1) for part in words[0]]
            attributes["start_indices"] = [r[0] for r in ranges]
            attributes["limit_indices"] = [r[1] for r in ranges]
            attributes["strides"] = [r[2] if len(r) > 2 else 1 for r in ranges]
        elif name == "stablehlo.get_tuple_element" and words:
            attributes["index"] = words[0][0]
        elif name == "stablehlo.reduce_precision":
            exponent, _, mantissa = str(attributes.get("format", "")).partition("m")
            attributes["exponent_bits"] = int(exponent.removeprefix("e") or 0)
            attributes["mantissa_bits"] = int(mantissa or 0)
        elif words and isinstance(words[0], str) and words[0].startswith("@"):
            key = "callee" if name == "func.call" else "call_target_name"
            attributes[key] = words[0].replace('"', "")
        elif name == "stablehlo.composite" and words:
            attributes["name"] = str(words[0]).strip('"')


def _product_axes(attributes: dict[str, Any]) -> dict[str, Any]:
    """The axes of ``dot_general`` by the names of the generic form."""
    batch = attributes.pop("batching_dims", ([], []))
    contracted = attributes.pop("contracting_dims", None)
    if contracted is None:
        return attributes.get("dot_dimension_numbers", {})
    return {"lhs_batching_dimensions": batch[0], "rhs_batching_dimensions": batch[1],
            "lhs_contracting_dimensions": contracted[0],
            "rhs_contracting_dimensions": contracted[1]}
