"""Give each expression a device, and copy tensors between the devices.

The constraint part of placement: Relay's ``PlanDevices`` with the colocation groups and heuristics
of TensorFlow's placer. A region without an annotation or heuristic stays free: it runs on the first
device, or placement by cost chooses a device for its kernels (``place_tasks``).
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import ClassVar

from weft import ir
from weft.op.annotation import on_device
from weft.op.device import device_copy
from weft.support.dataclass import dataclass
from weft.transform.placement.available import AvailableDevices
from weft.transform.placement.constraints import DEVICE_KINDS, Border, Constraints, constraints_of
from weft.transform.placement.explain import explain_placement, region_lines
from weft.transform.placement.heuristics import apply_heuristics


@ir.register_pass
@dataclass(frozen=True)
class PlanDevices(ir.Pass):
    """Replace ``on_device`` by ``device_copy`` between the regions of a program.

    A region is a set of expressions that annotations, colocation groups and heuristics put on one
    device, or a free set. A tensor that crosses the border of a region with a device is copied,
    once for each destination; inputs of ``main`` are copied to each region that reads them.

    ``devices`` are those that the program may run on, such as ``sim:0``, the default first; a
    partial specification (``sim``) means the first device that matches. Without ``devices``
    specifications are not resolved. ``soft`` maps a device that ``devices`` lacks to one of the
    same kind, or to the default; otherwise it is a ``TargetError``. Contradictions are errors too.

    def @main(%x: Tensor[(4,), float32]) {
      add(annotation.on_device(nn.relu(%x), device="sim:1"), 1f)
    }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      add(device_copy(nn.relu(device_copy(%x, destination="sim:1")), source="sim:1"), 1f)
    }
    """

    name: ClassVar[str] = "plan_devices"
    seeks: ClassVar[ir.Seeks] = ir.Seeks(operators=(on_device.name, device_copy.name),
                                         hooks=(DEVICE_KINDS,))
    devices: tuple[str, ...] = ()
    soft: bool = False

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        found = constraints_of(mod, soft=self.soft)
        log = apply_heuristics(found)
        available = AvailableDevices(self.devices, soft=self.soft)
        log += _pin_rest(found, available)
        result = _Rewrite(found, available).run(mod)
        explain_placement([*region_lines(found, available), *log])
        return result




def _pin_rest(found: Constraints, available: AvailableDevices) -> list[str]:
    """Put free colocation groups, and operators of few devices, on the first that can run them."""
    log = []
    domains = found.domains
    for root in dict.fromkeys(domains.root(domain) for domain in domains.constrained()):
        known = domains.known(root)
        if not known.device.is_unconstrained:
            continue
        if not available.devices:
            kinds = known.common_kinds or ()
            available.resolved(known)
            if len(kinds) == 1:
                domains.constrain(root, ir.VirtualDevice(next(iter(kinds))), known.kinds[0].origin)
            continue
        for name, origin in known.groups.items():
            first = available.first_of(known.common_kinds)
            if first is not None:
                log.append(f"group {name!r}: {first}, the first device that runs it")
                domains.constrain(root, first, origin)
                break
        else:
            device = available.resolved(known)
            if not device.is_unconstrained:
                log.append(f"{known.kinds[0].origin}: {device}, the first device that runs it")
                domains.constrain(root, device, known.kinds[0].origin)
    return log


@dataclass(slots=True)
class _Rewrite:
    """Rewrites the functions, with copies at the borders between different devices."""

    found: Constraints
    available: AvailableDevices
    memo: dict[ir.Expr, ir.Expr] = field(default_factory=dict)
    copies: dict[tuple[ir.Expr, str], ir.Expr] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)  # sources and destinations of copies

    def run(self, mod: ir.IRModule) -> ir.IRModule:
        functions: dict[str, ir.Function] = {}
        for name, function in mod.functions.items():
            for node in ir.post_order(function):
                self.memo[node] = self._rewritten(node)
            written = self.memo[function]
            if isinstance(written, ir.Function):
                functions[name] = written
        if all(function is mod.functions[name] for name, function in functions.items()):
            return mod
        return dataclasses.replace(mod, functions=functions)

    def _rewritten(self, node: ir.Expr) -> ir.Expr:
        if isinstance(node, ir.TupleGetItem) and node in self.found.aliases:
            return self.memo[self.found.aliases[node]]  # the tuple may hold a copy of the field
        parts = [self.memo[child] for child in ir.children(node)]
        for position, part in enumerate(parts):
            border = self.found.borders.get((node, position))
            if border is not None:
                parts[position] = self._across(part, border)
        if isinstance(node, ir.Call) and node.op is on_device:
            border = self.found.results.get(node)
            return parts[0] if border is None else self._across(parts[0], border)
        if isinstance(node, ir.Call) and node.op is device_copy:
            return self._resolved_copy(node, parts[0])
        return ir.replace_children(node, parts)

    def _across(self, value: ir.Expr, border: Border) -> ir.Expr:
        """The value in the domain of the other side of a border."""
        if isinstance(value, ir.Constant) or not isinstance(value.checked_type, ir.TensorType):
            return value
        domains = self.found.domains
        if border.is_result and border.source is not None \
                and domains.root(border.source) in self.copied:
            return value
        target = domains.device(border.destination)
        source = ir.ANYWHERE if border.source is None else domains.device(border.source)
        if source == target or (border.late and source.is_unconstrained):
            return value
        if border.source is None and target.is_unconstrained:
            return value
        to = self._text(border.destination)
        key = value, to
        if key not in self.copies:
            from_ = "" if border.source is None else self._text(border.source)
            copy = device_copy(value, source=from_, destination=to, span=value.span)
            self.copies[key] = copy.with_type(value.checked_type)
        return self.copies[key]

    def _resolved_copy(self, call: ir.Call, value: ir.Expr) -> ir.Expr:
        """A copy of the original program, with the full names of its devices."""
        domains = self.found.copies[call]
        source, target = ("" if one is None else self._text(one) for one in domains)
        attrs = call.attrs.replace(source=source, destination=target)
        changed = call if attrs == call.attrs else call.replace(
            attrs=attrs, checked_type=call.checked_type)
        return ir.replace_children(changed, [value])

    def _text(self, domain: int) -> str:
        root = self.found.domains.root(domain)
        self.copied.add(root)
        if root not in self.texts:
            device = self.available.resolved(self.found.domains.known(root))
            self.texts[root] = str(device)
        return self.texts[root]
