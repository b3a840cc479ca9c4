"""``make test-language``: logits of every GGUF family beside llama.cpp's, from the same files.

    python -m tests.language.llama_cpp

Files are written here from seeded transformers models. llama.cpp keeps caches in 16 bits and
rounds activations to 8 bits beside weights in blocks.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import weft
from tests.models.gguf_writer import MODELS, write_model
from tests.seeded_models import seeded
from tests.unit.generation.text.gguf_files import TYPES, write_gguf

IDS = np.array([256, 3, 77, 12, 254, 9, 9, 41, 100, 8, 17, 33, 52])
# Of the largest logit: the difference of floats, and that of two roundings of activations.
FLOATS, BLOCKS = 0.003, 0.06


def files(folder: Path) -> Iterator[tuple[str, Path, float]]:
    for name, described in MODELS.items():
        model = seeded(*described)
        yield name, write_model(folder / f"{name}.gguf", name, model), FLOATS
    for kind in TYPES:
        if kind not in ("f32", "f16"):
            yield kind, write_gguf(folder / f"{kind}.gguf", kind), BLOCKS


def theirs(library: Any, path: Path) -> np.ndarray:
    model = library.Llama(str(path), n_ctx=64, n_threads=1, logits_all=True, verbose=False,
                          use_mmap=True)
    model.eval(IDS.tolist())
    found = np.array(model.scores[:len(IDS)], np.float64)
    model.close()
    return found


def ours(path: Path) -> np.ndarray:
    model = weft.models.load(path, capacity=64)
    return model.decoder.score([0], [IDS])[0].astype(np.float64)


def main() -> int:
    try:
        import llama_cpp
    except ImportError:
        print("llama-cpp-python is missing: pip install llama-cpp-python (it needs a compiler "
              "for C++)", file=sys.stderr)
        return 1
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name, path, bound in files(Path(folder)):
            wanted, found = theirs(llama_cpp, path), ours(path)
            error = float(abs(found - wanted).max() / abs(wanted).max())
            same = float((found.argmax(axis=1) == wanted.argmax(axis=1)).mean())
            print(f"{name:12} largest difference {error:.5f} of the largest logit, "
                  f"{same:.0%} of the likeliest tokens", flush=True)
            if not error <= bound:
                failed.append(name)
    print(f"differ by more than is allowed: {', '.join(failed)}" if failed else "all agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
