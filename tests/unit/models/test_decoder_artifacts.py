"""Decoders as artifacts: loaded without a compiler, with empty caches, to the same bits."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft
from tests.unit.models.small_decoders import ARCHITECTURES, random_weights
from weft.models import CompiledDecoder
from weft.support.errors import ArtifactError

# Generates where nothing but NumPy, ml_dtypes and weft can be imported.
_BARE = """
import sys
allowed = {"numpy", "ml_dtypes", "weft", *sys.stdlib_module_names}

class Missing:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root not in allowed and not root.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import pickle
import numpy as np
import weft
decoder = weft.load(sys.argv[1])
prompts = pickle.loads(sys.stdin.buffer.read())
logits = decoder.prefill([0], [prompts[0]])
decoder.free(0)
texts = [one.tokens for one in weft.generate(decoder, prompts, max_new_tokens=6)]
loaded = [name for name in sys.modules if name.startswith(("weft.ir", "weft.codegen", "weft.te"))]
assert not loaded, loaded
sys.stdout.buffer.write(pickle.dumps((logits, texts)))
"""
PROMPTS = [np.array([3, 1, 4, 1, 5]), np.array([2, 7, 1])]


@functools.cache
def decoder() -> CompiledDecoder:
    return CompiledDecoder(ARCHITECTURES["rms_norm"], random_weights("rms_norm"), capacity=24,
                           batch=2, block_size=4)


def test_a_decoder_generates_the_same_without_a_compiler(tmp_path: Path) -> None:
    model = decoder()
    logits = model.prefill([0], [PROMPTS[0]])
    model.free(0)
    model.export(tmp_path / "lm.weft")  # empty caches, whatever was read before
    done = subprocess.run([sys.executable, "-c", _BARE, str(tmp_path / "lm.weft")], check=False,
                          capture_output=True, input=pickle.dumps(PROMPTS))
    assert done.returncode == 0, done.stderr.decode()
    found, texts = pickle.loads(done.stdout)
    np.testing.assert_array_equal(found, logits)
    for text, wanted in zip(texts, weft.generate(model, PROMPTS, max_new_tokens=6), strict=True):
        np.testing.assert_array_equal(text, wanted.tokens)


def test_entry_points_of_a_decoder(tmp_path: Path) -> None:
    model = decoder()
    model.export(tmp_path / "lm.weft", portable=False, check=False)
    loaded = weft.load(tmp_path / "lm.weft")
    assert (loaded.vocab_size, loaded.capacity, loaded.slots) == (
        model.vocab_size, model.capacity, model.slots)
    alone = weft.load(tmp_path / "lm.weft", entry="decode")
    assert [spec.name for spec in alone.inputs] == [spec.name for spec in model.executable.inputs]
    with pytest.raises(ArtifactError, match="no entry point 'encode'"):
        weft.load(tmp_path / "lm.weft", entry="encode")
