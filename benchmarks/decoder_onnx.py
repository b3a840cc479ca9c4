"""Decoders as ONNX models with the operators of ONNX Runtime GenAI's model builder.

``com.microsoft.GroupQueryAttention`` reads and writes key and value caches in place, so that ONNX
Runtime is timed at its best. Weights are those of ``weft.models``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.models.architecture import Architecture, Weights

CONTRIB = "com.microsoft"
INT64, FLOAT, INT32 = TensorProto.INT64, TensorProto.FLOAT, TensorProto.INT32


def write_decoder(architecture: Architecture, weights: Weights, capacity: int, folder: Path
                  ) -> Path:
    """Write ``model.onnx`` with its weights beside it; returns its path.

    Inputs: ``ids`` and ``positions`` int64 [batch, seq], ``last_keys`` int32 [batch] (number of
    cached tokens after this call, minus one), ``total`` int32 scalar, and ``k0, v0, ...`` float32
    [batch, kv heads, capacity, head dim]. Outputs: ``logits`` of the last token; ``new_k0, ...``.
    """
    writer = _Writer(architecture, weights, capacity)
    model = helper.make_model(writer.graph(), ir_version=10, opset_imports=[
        helper.make_opsetid("", 20), helper.make_opsetid(CONTRIB, 1)])
    path = folder / "model.onnx"
    onnx.save_model(model, str(path), save_as_external_data=True, location="weights.bin")
    return path


class _Writer:
    def __init__(self, architecture: Architecture, weights: Weights, capacity: int) -> None:
        self.a = architecture
        self.w = weights
        self.capacity = capacity
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def graph(self) -> onnx.GraphProto:
        a, cache = self.a, ["batch", self.a.kv_heads, self.capacity, self.a.head_dim]
        x = self.embed()
        inputs = [("ids", INT64, ["batch", "seq"]), ("positions", INT64, ["batch", "seq"]),
                  ("last_keys", INT32, ["batch"]), ("total", INT32, [])]
        outputs: list[tuple[str, int, list[Any]]] = [("logits", FLOAT, ["batch", a.vocab_size])]
        for number in range(len(a.layers)):
            x = self.block(x, number)
            inputs += [(f"{kind}{number}", FLOAT, cache) for kind in "kv"]
            outputs += [(f"new_{kind}{number}", FLOAT, cache) for kind in "kv"]
        last = self.node("Gather", [x, self.constant("minus_one", np.array(-1))], axis=1)
        self.node("Identity", [self.dense(self.norm(last, "final_norm"), "output")], "logits")
        infos = [[helper.make_tensor_value_info(*value) for value in values]
                 for values in (inputs, outputs)]
        return helper.make_graph(self.nodes, "decoder", *infos, [*self.initializers.values()])

    def embed(self) -> str:
        x = self.node("Gather", [self.weight("embedding.weight"), "ids"])
        if "position_embedding.weight" in self.w:
            y = self.node("Gather", [self.weight("position_embedding.weight"), "positions"])
            x = self.node("Add", [x, y])
        return x

    def block(self, x: str, number: int) -> str:
        prefix = f"layers.{number}."
        normal = self.norm(x, f"{prefix}attention_norm")
        q, k, v = (self.dense(normal, prefix + name) for name in "qkv")
        layer, tables = self.a.layers[number], []
        if layer.rotary is not None:
            tables = [self.constant(name, table) for name, table in
                      zip(("cos", "sin"), layer.rotary.tables(self.capacity), strict=True)]
        y = self.node(
            "GroupQueryAttention", [q, k, v, f"k{number}", f"v{number}", "last_keys", "total",
                                    *tables],
            f"attended{number}", f"new_k{number}", f"new_v{number}", domain=CONTRIB,
            num_heads=self.a.heads, kv_num_heads=self.a.kv_heads, scale=layer.scale,
            do_rotary=int(bool(tables)))
        x = self.node("Add", [x, self.dense(y, f"{prefix}attention_output")])
        return self.node("Add", [x, self.mlp(self.norm(x, f"{prefix}mlp_norm"), prefix)])

    def mlp(self, x: str, prefix: str) -> str:
        up = self.dense(x, f"{prefix}up")
        if f"{prefix}gate.weight" in self.w:
            gate = self.node("QuickGelu", [self.dense(x, f"{prefix}gate")], domain=CONTRIB,
                             alpha=1.0)  # SiLU
            return self.dense(self.node("Mul", [gate, up]), f"{prefix}down")
        return self.dense(self.node("FastGelu", [up], domain=CONTRIB), f"{prefix}down")

    def norm(self, x: str, name: str) -> str:
        kind = "LayerNormalization" if self.a.norm == "layer" else "SimplifiedLayerNormalization"
        operands = [x, self.weight(f"{name}.weight")]
        if self.a.norm == "layer":
            operands.append(self.weight(f"{name}.bias"))
        return self.node(kind, operands, axis=-1, epsilon=self.a.epsilon)

    def dense(self, x: str, name: str) -> str:
        y = self.node("MatMul", [x, self.weight(f"{name}.weight", transposed=True)])
        bias = f"{name}.bias"
        return self.node("Add", [y, self.weight(bias)]) if bias in self.w else y

    def weight(self, name: str, *, transposed: bool = False) -> str:
        value = self.w[name]
        return self.constant(f"{name}.T" if transposed else name,
                             value.T if transposed else value)

    def constant(self, name: str, value: np.ndarray) -> str:
        if name not in self.initializers:
            self.initializers[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def node(self, kind: str, operands: list[str], *outputs: str, domain: str = "", **attrs: Any
             ) -> str:
        names = outputs or (f"value{len(self.nodes)}",)
        self.nodes.append(helper.make_node(kind, operands, list(names), domain=domain, **attrs))
        return names[0]
