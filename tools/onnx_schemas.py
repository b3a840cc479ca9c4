"""Writes weft/frontend/onnx/schemas.json: what ONNX's checker asks of a node, for each operator.

``python -m tools.onnx_schemas`` brings the file up to date with the newest release of ``onnx``.
"""

from __future__ import annotations

import json
from typing import Any

from onnx import NodeProto, checker, defs

from weft.frontend.onnx.schemas import FILE, MOST, operator_key

DOMAINS = ("", "ai.onnx.ml")
_OPTIONS = {"Single": "s", "Optional": "o", "Variadic": "v"}


def table() -> dict[str, Any]:
    """The content of the file."""
    operators: dict[str, list[list[Any]]] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        if schema.domain not in DOMAINS:
            continue
        rows = operators.setdefault(operator_key(schema.domain, schema.name), [])
        facts = _facts(schema)
        if not rows or rows[-1][1:] != facts:  # other types of tensors, which are not checked
            rows.append([schema.since_version, *facts])
    newest = {domain: max(schema.since_version for schema in defs.get_all_schemas_with_history()
                          if schema.domain == domain) for domain in DOMAINS}
    return {"newest": newest | {"": defs.onnx_opset_version()},
            "operators": dict(sorted(operators.items()))}


def _facts(schema: Any) -> list[Any]:
    """Inputs, outputs, attributes, and required attributes; none for what is rejected."""
    if schema.deprecated:
        return []
    attributes = {name: int(schema.attributes[name].type) for name in sorted(schema.attributes)}
    required = [name for name in attributes if schema.attributes[name].required]
    return [_ports(schema, "input"), _ports(schema, "output"), attributes, required]


def _ports(schema: Any, kind: str) -> list[Any]:
    """The numbers of inputs or outputs that are accepted, and which of them may be absent."""
    ports = getattr(schema, f"{kind}s")
    least, most = (min(getattr(schema, f"{end}_{kind}"), MOST) for end in ("min", "max"))
    except_for = [count for count in range(least, min(most, len(ports)) + 1)
                  if not _may_have(schema, kind, count)]
    return [least, most, "".join(_OPTIONS[port.option.name] for port in ports), except_for]


def _may_have(schema: Any, kind: str, count: int) -> bool:
    """Whether the checker accepts a number of inputs or outputs within their range."""
    other = "output" if kind == "input" else "input"
    context = checker.C.CheckerContext()
    context.ir_version, context.opset_imports = 8, {schema.domain: schema.since_version}
    node = NodeProto(op_type=schema.name, domain=schema.domain)
    getattr(node, kind).extend(["x"] * count)
    getattr(node, other).extend(["x"] * getattr(schema, f"min_{other}"))
    try:
        checker.check_node(node, context)
    except checker.ValidationError as error:
        return f"not in allowed {kind} sizes" not in str(error)
    return True


def text() -> str:
    """The file, a line for each operator."""
    found = table()
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(row, separators=(',', ':'))}"
                      for name, row in found["operators"].items())
    return f'{{"newest": {json.dumps(found["newest"])},\n"operators": {{\n{rows}\n}}}}\n'


def main() -> None:
    """Write the file."""
    FILE.write_text(text(), encoding="ascii")


if __name__ == "__main__":
    main()
