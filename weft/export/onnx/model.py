"""A module as an ONNX model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import ModelProto, ValueInfoProto, helper

from weft.export.files import replacing
from weft.export.onnx.graph import ExternalData, GraphWriter
from weft.export.onnx.ports import value_info
from weft.export.onnx.program import ProgramWriter
from weft.export.prepared import prepared
from weft.export.writers import Value, flattened
from weft.ir import IRModule, TupleType, post_order
from weft.ir.expr import Constant
from weft.ir.module import input_names, output_names
from weft.support.errors import ArtifactError, OptionError

FIRST_OPSET = 21
MAX_BYTES = 2**31 - 2**24  # of constants in a protobuf message, less what surrounds them


def onnx_model(mod: IRModule, *, opset: int = FIRST_OPSET, name: str = "main",
               external: ExternalData | None = None) -> ModelProto:
    """``main`` of a module as an ONNX model with the names of its inputs and outputs.

    ``external`` takes the data of large constants.

    Raises ``OptionError`` for an opset that is too old or unknown to the onnx package, and
    ``UnsupportedModelError`` with everything that ONNX has no form for.
    """
    if not FIRST_OPSET <= opset <= onnx.defs.onnx_opset_version():
        raise OptionError("no such opset to write", got=opset,
                          expected=f"{FIRST_OPSET} to {onnx.defs.onnx_opset_version()}")
    mod = prepared(mod)
    main = mod["main"]
    inputs, outputs = input_names(mod), output_names(mod)
    graph = GraphWriter([*inputs, *outputs])
    program = ProgramWriter(graph)
    written: dict[int, Value] = {}
    declared: list[ValueInfoProto] = []
    for param, port in zip(main.params, inputs, strict=True):
        type_ = program.gaps.tensor(param.checked_type, f"input {port}")
        declared.append(value_info(port, type_))
        program.sizes.define(port, type_)
        written[id(param)] = port
    found = flattened(program.write(main.body, written))
    program.gaps.check(name)
    body = main.body.checked_type
    fields = body.fields if isinstance(body, TupleType) else (body,)
    types = [program.gaps.tensor(f, f"output {p}") for f, p in zip(fields, outputs, strict=True)]
    for value, port in zip(found, outputs, strict=True):
        graph.nodes.append(helper.make_node("Identity", [value], [port], name=f"to_{port}"))
    results = [value_info(port, t) for port, t in zip(outputs, types, strict=True)]
    return _model(graph, name, declared, results, opset, external)


def export_onnx(mod: IRModule, path: str | os.PathLike[str], *, opset: int = FIRST_OPSET,
                external_data: bool | None = None) -> None:
    """Write ``main`` of a module as an ONNX file, which is replaced atomically.

    With ``external_data`` constants are in a second file, ``NAME.data``; by default they are where
    protobuf's limit of 2 GB asks for it. Raises what ``onnx_model`` raises, and ``ArtifactError``
    if a file cannot be written.
    """
    target = Path(path)
    is_large = external_data if external_data is not None else _constant_bytes(mod) > MAX_BYTES
    external = ExternalData(f"{target.name}.data") if is_large else None
    model = onnx_model(mod, opset=opset, name=target.stem or "main", external=external)
    try:
        if external is not None:
            with replacing(target.with_name(external.name)) as file:
                external.write(file)
        with replacing(target) as file:
            file.write(model.SerializeToString(deterministic=True))
    except OSError as error:
        raise ArtifactError("the model cannot be written", where=path,
                            got=error.strerror or error) from None


def _constant_bytes(mod: IRModule) -> int:
    found = {id(e): e.data.nbytes for fn in mod.functions.values() for e in post_order(fn)
             if isinstance(e, Constant)}
    return sum(found.values())


def _model(graph: GraphWriter, name: str, inputs: Sequence[ValueInfoProto],
           outputs: Sequence[ValueInfoProto], opset: int, external: ExternalData | None
           ) -> ModelProto:
    proto = graph.graph(name, list(inputs), list(outputs), graph.tensors(external))
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(proto, producer_name="weft", opset_imports=imports,
                             ir_version=helper.find_min_ir_version_for(imports))
