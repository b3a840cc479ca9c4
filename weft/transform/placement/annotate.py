"""Annotations of tensors that are given by name: the option ``placement`` of a compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from weft import ir
from weft.support.errors import TargetError
from weft.transform.passes.extract_subgraph import tensors_and_body, unknown_tensor


def with_placement(mod: ir.IRModule, placement: Mapping[str, str]) -> ir.IRModule:
    """The module with ``annotation.on_device`` around the tensors in ``placement``.

    Names are those of ``tensors_of``, which the result keeps. The readers of an annotated input run
    on its device. Raises ``InvalidInputError`` for an unknown name, ``TargetError`` for a value
    that is no tensor and for two devices of one tensor.
    """
    if not placement:
        return mod
    known, body = tensors_and_body(mod)
    wanted: dict[ir.Expr, str] = {}
    for name, device in placement.items():
        if name not in known:
            raise unknown_tensor(name, known, mod)
        found = known[name]
        if not isinstance(found.checked_type, ir.TensorType):
            raise TargetError(f"{name!r} is not a tensor and has no device", got=found.checked_type)
        if wanted.setdefault(found, device) != device:
            raise TargetError(f"placement gives {name!r} two devices",
                              got=f"{wanted[found]} and {device}")
    memo: dict[ir.Expr, ir.Expr] = {}
    for node in ir.post_order(body):
        parts = [memo[child] for child in ir.children(node)]
        changed = any(part is not child for part,
                      child in zip(parts, ir.children(node), strict=True))
        # Annotations are identities: types do not change, and names still refer to the same
        # tensors.
        made = ir.rebuild(node, parts, checked_type=node.checked_type) if changed else node
        memo[node] = _annotated(made, wanted[node]) if node in wanted else made
    main = dataclasses.replace(mod["main"], body=memo[body])
    named = {name: memo[one] for name, one in known.items() if one in memo}
    made_mod = mod.with_function("main", main)
    return ir.infer_type(dataclasses.replace(made_mod, settled={}, named=named))


def _annotated(value: ir.Expr, device: str) -> ir.Call:
    from weft.op.annotation import OnDeviceAttrs  # for models on several devices

    is_input = isinstance(value, ir.Var)
    attrs = OnDeviceAttrs(device=device, constrain_body=not is_input, constrain_result=is_input)
    return ir.Call(ir.get_op("annotation.on_device"), (value,), attrs, span=value.span,
                   checked_type=value.checked_type)
