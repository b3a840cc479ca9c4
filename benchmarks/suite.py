"""The models that are benchmarked: each writes an ONNX file and inputs, from seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.models import MODELS, random_inputs, save

Feeds = dict[str, np.ndarray]
LENGTH = 128  # tokens of a sequence


@dataclass(frozen=True)
class Model:
    """``write(folder, batch)`` gives the path of the file, and the inputs by name.

    ``is_new``: no schedule was tuned with it.
    """

    name: str
    write: Callable[[Path, int], tuple[Path, Feeds]]
    is_new: bool = False


def _built(name: str, folder: Path, batch: int) -> tuple[Path, Feeds]:
    model = MODELS[name](64 * batch if name == "mlp" else batch)
    return save(model, folder, f"{name}-{batch}"), random_inputs(model)


def _exported(name: str, folder: Path, batch: int) -> tuple[Path, Feeds]:
    from benchmarks.torch_export import export

    return export(name, folder, batch, LENGTH)


# Those of ``benchmarks/torch_further.py``, by name, so that listing them does without torch.
FURTHER = ("vgg16", "densenet", "shufflenet", "inception", "pyramid_detector", "mixer", "regnet",
           "swin", "segformer", "distilbert", "t5_encoder", "speech_encoder", "wavenet",
           "recommender")
# Those of ``benchmarks/torch_zoo.py`` that are not built as ONNX graphs above.
KNOWN = ("efficientnet", "convnext", "unet", "detector", "lstm", "bert", "vit", "gpt2",
         "gpt2_past", "llama")

SUITE: dict[str, Model] = {
    **{name: Model(name, partial(_built, name)) for name in MODELS},
    **{name: Model(name, partial(_exported, name)) for name in KNOWN},
    **{name: Model(name, partial(_exported, name), is_new=True) for name in FURTHER},
}
