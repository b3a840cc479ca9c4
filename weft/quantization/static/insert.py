"""Insertion of ``qnn.quantize`` and ``qnn.dequantize`` around layers.

``fake_quantization_to_integer`` turns the layers into integer ones when the program is compiled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from weft import op
from weft.ir import Call, Constant, Expr, Function, Tuple, const, infer_expr, post_order
from weft.quantization.static.ranges import Quantizer, stored_weight, weight_scales
from weft.quantization.static.sites import Site, anchor_of, path_from
from weft.transform.analysis.graph import as_function, enters, over_new_children


def with_quantized_layers(
    function: Function, sites: Sequence[Site], quantizers: Mapping[Expr, Quantizer],
    readers: Collection[Expr] = (),
) -> Function:
    """The function with the operands of ``sites``, and those of ``readers``, quantised."""
    return _Insertion(sites, quantizers, readers).run(function)


def isolated_layers(sites: Sequence[Site], quantizers: Mapping[Expr, Quantizer]) -> list[Expr]:
    """Each layer with its own operands quantised, and all before it exact."""
    insertion = _Insertion(sites, quantizers, ())
    for site in sites:
        for tensor in site.activations:
            for node in (tensor, anchor_of(tensor)):
                insertion.new[node] = node
    return [insertion.layer(site.call, site) for site in sites]


class _Insertion:
    """Rewrites one function; each tensor has at most one pair."""

    def __init__(self, sites: Sequence[Site], quantizers: Mapping[Expr, Quantizer],
                 readers: Collection[Expr]) -> None:
        self.sites = {site.call: site for site in sites}
        self.quantizers, self.readers = quantizers, readers
        self.new: dict[Expr, Expr] = {}
        self.pairs: dict[Expr, Expr] = {}

    def run(self, function: Function) -> Function:
        for node in post_order(function, enter=enters):
            if node in self.sites and isinstance(node, Call):
                self.new[node] = self.layer(node, self.sites[node])
            elif node in self.readers and isinstance(node, Call):
                self.new[node] = self._reader(node)
            else:
                self.new[node] = over_new_children(node, self.new.__getitem__)
        return as_function(self.new[function])

    def layer(self, call: Call, site: Site) -> Expr:
        """The call of ``site`` with quantised operands."""
        args = tuple(fake_weight(a, site.axis) if isinstance(a, Constant) else self._quantised(a)
                     for a in call.args)
        return infer_expr(call.replace(args=args, checked_type=None), trust=True)

    def _reader(self, call: Call) -> Expr:
        args = tuple(
            a.replace(fields=tuple(map(self._quantised, a.fields)), checked_type=None)
            if isinstance(a, Tuple) else self._quantised(a) for a in call.args)
        return infer_expr(call.replace(args=args, checked_type=None), trust=True)

    def _quantised(self, tensor: Expr) -> Expr:
        """The tensor as it is after rounding to 8 bits; unchanged if it has no quantizer."""
        anchor = anchor_of(tensor)
        if anchor not in self.quantizers:
            return self.new[tensor]
        found = self.pairs.get(tensor)
        if found is None:
            found = self._pair(anchor)
            for call in reversed(path_from(anchor, tensor)):
                found = infer_expr(call.replace(args=(found,), checked_type=None), trust=True)
            self.pairs[tensor] = found
        return found

    def _pair(self, anchor: Expr) -> Expr:
        if anchor not in self.pairs:
            self.pairs[anchor] = fake_quantised(self.new[anchor], self.quantizers[anchor])
        return self.pairs[anchor]


def fake_quantised(tensor: Expr, quantizer: Quantizer) -> Expr:
    """``tensor``, quantised and dequantised."""
    scale, zero = const(quantizer.scale, "float32"), const(quantizer.zero, "int32")
    stored = op.qnn.quantize(tensor, scale, zero, out_dtype=quantizer.dtype, span=tensor.span)
    return infer_expr(op.qnn.dequantize(stored, scale, zero, span=tensor.span), trust=True)


def fake_weight(weight: Constant, axis: int) -> Expr:
    """A weight stored as int8 with a scale per channel, dequantised."""
    scales = weight_scales(weight.data, axis)
    stored = Constant(stored_weight(weight.data, scales, axis), span=weight.span)
    result = op.qnn.dequantize(stored, const(scales), const(0, "int32"), axis=axis,
                               span=weight.span)
    return infer_expr(result, trust=True)


def with_results(function: Function, results: Sequence[Expr]) -> Function:
    """The function of the same parameters that gives other expressions of its body."""
    body = infer_expr(Tuple(tuple(results)), trust=True)
    return dataclasses.replace(function, body=body, ret_type=None, checked_type=None)
