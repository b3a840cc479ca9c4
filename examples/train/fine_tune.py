"""Fine-tune a model that an ONNX file holds: its weights become parameters.

Without ``--onnx`` it first makes a file: a small network trained to tell even digits from odd ones,
of which the last layer is then replaced to tell all ten.

    python -m examples.train.fine_tune --steps 100
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import weft
from examples.train.digits import load_digits
from examples.train.training import (
    accuracy,
    arguments,
    compiled_step,
    epochs_of,
    fit,
    show_curve,
)
from weft import data, nn, optim


def write_onnx(path: Path, weights: dict[str, np.ndarray]) -> None:
    """Two layers, (n, 64) to (n, 32), as an ONNX file."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Gemm", ["x", "0.weight", "0.bias"], ["h"], transB=1),
             helper.make_node("Relu", ["h"], ["r"]),
             helper.make_node("Gemm", ["r", "2.weight", "2.bias"], ["s"], transB=1),
             helper.make_node("Relu", ["s"], ["y"])]
    graph = helper.make_graph(
        nodes, "features", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 32])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)


def trained_features(x: np.ndarray, y: np.ndarray, steps: int) -> dict[str, np.ndarray]:
    """The weights of a network that learned to tell even digits from odd ones."""
    features = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU())
    model = nn.Sequential(features, nn.Linear(32, 2))
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    loader = data.DataLoader(data.ArrayDataset(x, y % 2), 64, shuffle=True, drop_last=True)
    step = compiled_step(model, optimizer, nn.CrossEntropyLoss())
    fit(step, epochs_of(loader, -(-steps // len(loader))), steps, "even or odd")
    return {name: np.array(value) for name, value in features.state_dict().items()}


def fine_tuned(path: Path, classes: int, lr: float = 1e-3, features: int = 32) -> Any:
    """The model of the file with a new last layer; the file's layers learn ten times slower."""
    base = nn.from_onnx(path)
    model = nn.Sequential(base, nn.Linear(features, classes))
    optimizer = optim.AdamW([{"params": list(base.parameters()), "lr": lr},
                             {"params": list(model[1].parameters())}], lr=10 * lr)
    return model, optimizer


def main(argv: list[str] | None = None) -> list[float]:
    """Train, and print the accuracy on images that training did not see."""
    parser = arguments(__doc__, ("mlp",), epochs=5)
    parser.add_argument("--onnx", type=Path, default=Path("features.onnx"))
    options = parser.parse_args(argv)
    x, y, x_test, y_test = (a.reshape(len(a), -1) if a.ndim > 1 else a for a in load_digits())
    weft.manual_seed(options.seed)
    if not options.onnx.exists():
        write_onnx(options.onnx, trained_features(x, y, 100))
    model, optimizer = fine_tuned(options.onnx, 10, options.lr)
    loader = data.DataLoader(data.ArrayDataset(x, y), options.batch_size, shuffle=True,
                             seed=options.seed, drop_last=True)
    total = options.steps or options.epochs * len(loader)
    step = compiled_step(model, optimizer, nn.CrossEntropyLoss())
    losses = fit(step, epochs_of(loader, -(-total // len(loader))), total, "fine-tuning")
    show_curve(losses, options.curve, "fine-tuning on digits")
    print(f"accuracy on {len(y_test)} test images: {accuracy(model, x_test, y_test):.3f}")
    return losses


if __name__ == "__main__":
    main()
