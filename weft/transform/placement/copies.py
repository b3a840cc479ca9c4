"""The plan of devices: a device for each region, and copies at the borders between devices."""

from __future__ import annotations

import dataclasses
from dataclasses import field

from weft import ir
from weft.op.annotation import on_device
from weft.op.device import device_copy
from weft.support.dataclass import dataclass
from weft.transform.placement.available import AvailableDevices
from weft.transform.placement.constraints import Border, Constraints, constraints_of
from weft.transform.placement.explain import explain_placement, region_lines
from weft.transform.placement.heuristics import apply_heuristics


def planned(mod: ir.IRModule, devices: tuple[str, ...], *, soft: bool) -> ir.IRModule:
    """``mod`` with copies; see ``PlanDevices``."""
    found = constraints_of(mod, soft=soft)
    log = apply_heuristics(found)
    available = AvailableDevices(devices, soft=soft)
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
