"""Softmax regression, an MLP-ResNet or ResNet9 on the handwritten digits of scikit-learn.

python -m examples.train.digits --model mlp_resnet --epochs 10
"""

from __future__ import annotations

from typing import Any

import numpy as np

import weft
from examples.train import models
from examples.train.training import (
    accuracy,
    arguments,
    compiled_step,
    epochs_of,
    fit,
    show_curve,
)
from weft import data, nn, optim

MODELS = ("softmax", "mlp_resnet", "resnet9")


def load_digits(enlarged: bool = False) -> tuple[np.ndarray, ...]:
    """Images (N, 1, 8, 8), or (N, 1, 32, 32) enlarged, and classes: training, then test."""
    from sklearn import datasets

    found = datasets.load_digits()
    images = (found.images[:, None] / 16).astype(np.float32)
    if enlarged:
        images = images.repeat(4, axis=2).repeat(4, axis=3)
    order = np.random.default_rng(0).permutation(len(images))
    images, classes = images[order], found.target[order].astype(np.int64)
    return images[:1500], classes[:1500], images[1500:], classes[1500:]


def build(library: Any, name: str, dropout: float = 0.1, width: int = 16) -> Any:
    """A model of ``library``, weft.nn or torch.nn; ``width`` is that of ResNet9."""
    if name == "softmax":
        return models.softmax_regression(library, 64, 10)
    if name == "mlp_resnet":
        return models.mlp_resnet(library, 64, 10, dropout=dropout)
    return models.resnet9(library, 1, 10, width)


def main(argv: list[str] | None = None) -> list[float]:
    """Train, and print the accuracy on images that training did not see."""
    options = arguments(__doc__, MODELS, epochs=10).parse_args(argv)
    x, y, x_test, y_test = load_digits(enlarged=options.model == "resnet9")
    weft.manual_seed(options.seed)
    model = build(nn, options.model)
    loader = data.DataLoader(data.ArrayDataset(x, y), options.batch_size, shuffle=True,
                             seed=options.seed, drop_last=True)
    total = options.steps or options.epochs * len(loader)
    optimizer = optim.AdamW(model.parameters(), lr=options.lr)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 5 * options.lr, total_steps=total + 1)
    step = compiled_step(model, optimizer, nn.CrossEntropyLoss())
    batches = epochs_of(loader, -(-total // len(loader)))
    losses = fit(step, batches, total, options.model, schedule)
    show_curve(losses, options.curve, f"{options.model} on digits")
    print(f"accuracy on {len(y_test)} test images: {accuracy(model, x_test, y_test):.3f}")
    return losses


if __name__ == "__main__":
    main()
