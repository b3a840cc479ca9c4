"""``TextEncoder``: from texts to vectors, by an encoder with its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from weft.generation.text.gguf_tokenizer import gguf_tokenizer
from weft.generation.text.tokenizer import Tokenizer
from weft.models.architecture import Architecture, Weights
from weft.models.compiled_decoder import compiled
from weft.models.gguf.reader import GgufFile, read_gguf
from weft.models.paged_decoder import batches_of, padded
from weft.models.text_encoder import (
    FOLDER_TYPES,
    GGUF_TYPES,
    encoder_of_gguf,
    encoder_of_source,
    text_encoder_program,
)
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.folder import read_json, tensors_of
from weft.models.transformers.source import Source
from weft.runtime.executable import Executable
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, OptionError, UnsupportedModelError

Pooling = Literal["mean", "cls", "last", "max"]
POOLINGS: tuple[Pooling, ...] = ("mean", "cls", "last", "max")
# Texts of a call: more of them would only take memory.
BATCH = 32
_GGUF_POOLING: dict[int, Pooling] = {0: "mean", 1: "mean", 2: "cls", 3: "last"}


@dataclass(frozen=True)
class EncoderFiles:
    """What the files of an encoder hold; texts are cut after ``most`` tokens."""

    architecture: Architecture
    weights: Weights
    tokenizer: Tokenizer
    pooling: Pooling
    normalize: bool
    most: int


class TextEncoder:
    """A model whose vectors of texts are near each other where texts mean the same.

    ``weft.models.load_encoder`` makes one of a folder or a file.
    """

    def __init__(self, executable: Executable, tokenizer: Tokenizer, *, pooling: Pooling,
                 normalize: bool, most: int) -> None:
        self.executable = executable
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.normalize = normalize
        tokenizer.cut_after(most)

    def embed(self, texts: str | Sequence[str], *, pooling: Pooling | None = None) -> np.ndarray:
        """Vectors, float32 [texts, hidden size]; of length 1 where the model says so.

        ``pooling`` of the states of tokens: their mean or maximum, or that of the first or the last
        token; by default what the model says.
        """
        kind = self.pooling if pooling is None else pooling
        if kind not in POOLINGS:
            raise OptionError("unknown pooling", expected=", ".join(POOLINGS), got=kind)
        ids = [np.array(self.tokenizer.encode(text), np.int64)
               for text in ([texts] if isinstance(texts, str) else texts)]
        vectors: dict[int, np.ndarray] = {}
        for rows in batches_of([len(row) for row in ids]):
            for first in range(0, len(rows), BATCH):
                part = rows[first:first + BATCH]
                tokens, lengths = padded([ids[row] for row in part])
                states = self.executable(tokens, np.arange(tokens.shape[1]), lengths)
                vectors |= {row: _pooled(state[:length], kind) for row, state, length
                            in zip(part, states, lengths, strict=True)}
        found = np.array([vectors[row] for row in range(len(ids))], np.float32)
        if not self.normalize:
            return found
        return found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)


def _pooled(states: np.ndarray, kind: Pooling) -> np.ndarray:
    if kind == "max":
        return states.max(axis=0)
    if kind == "mean":
        return states.mean(axis=0)
    return states[0 if kind == "cls" else -1]


def load_encoder(path: str | Path, *, dtype: str | None = None, activations: str = "int8",
                 **knobs: Any) -> TextEncoder:
    """An encoder of texts from a folder of sentence-transformers or transformers, or a GGUF file.

        weft.models.load_encoder("all-MiniLM-L6-v2").embed(["a text", "another"])

    BERT is known; pooling, normalisation and the longest text are those of the files. The other
    arguments are those of ``weft.models.load``.
    """
    files = read_encoder(Path(path))
    if files is None:
        raise UnsupportedModelError("the model is no encoder of texts", where=path,
                                    expected=", ".join(FOLDER_TYPES),
                                    help="weft.models.load(path).embed takes a language model")
    program = text_encoder_program(files.architecture, files.weights,
                                   dtype or files.weights.dtype, activations)
    return TextEncoder(compiled(program, **knobs), files.tokenizer, pooling=files.pooling,
                       normalize=files.normalize, most=files.most)


def read_encoder(path: Path) -> EncoderFiles | None:
    """The files of an encoder; ``None`` for those of another model."""
    if path.is_dir():
        config = read_json(path / "config.json")
        return _of_folder(path, config) if config.get("model_type") in FOLDER_TYPES else None
    if not path.is_file():
        raise InvalidModelError("no such model", where=path)
    file = read_gguf(path)
    return _of_gguf(file) if file.metadata.get("general.architecture") in GGUF_TYPES else None


def _of_folder(folder: Path, fields: Mapping[str, Any]) -> EncoderFiles:
    config = Configuration(fields, str(fields["model_type"]),
                           {"layer_norm_eps": 1e-12, "hidden_act": "gelu"})
    architecture, weights = encoder_of_source(config, Source(tensors_of(folder), None, config.kind))
    tokenizer = Tokenizer.of_file(folder / "tokenizer.json")
    most = _number(folder / "sentence_bert_config.json", "max_seq_length")
    pooling, normalize = _modules(folder)
    return _fitting(EncoderFiles(architecture, weights, tokenizer, pooling, normalize,
                                 min(most or 1 << 31, architecture.max_positions or 512)))


def _of_gguf(file: GgufFile) -> EncoderFiles:
    architecture, weights = encoder_of_gguf(file)
    kind = file.metadata.get("bert.pooling_type", 1)
    if kind not in _GGUF_POOLING:
        raise UnsupportedModelError("an unknown pooling of the states", where=file.path, got=kind,
                                    expected=", ".join(map(str, _GGUF_POOLING)))
    most = file.metadata.get("bert.context_length")
    positions = architecture.max_positions or 512
    return _fitting(EncoderFiles(
        architecture, weights, gguf_tokenizer(file.metadata, architecture.vocab_size),
        _GGUF_POOLING[kind], True, min(most if type(most) is int and most > 0 else positions,
                                       positions)))


def _fitting(files: EncoderFiles) -> EncoderFiles:
    if files.tokenizer.vocab_size > files.architecture.vocab_size:
        raise InvalidModelError("the tokenizer does not match the vocabulary of the model",
                                expected=f"at most {files.architecture.vocab_size} tokens",
                                got=files.tokenizer.vocab_size)
    return files


def _modules(folder: Path) -> tuple[Pooling, bool]:
    """Pooling, and whether vectors have length 1, as ``modules.json`` says."""
    if not (folder / "modules.json").exists():
        return "mean", True
    try:
        text = (folder / "modules.json").read_text(encoding="utf-8")
        modules = [str(module["type"]).rpartition(".")[2] for module in json.loads(text)]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidModelError("a file cannot be read", where=folder / "modules.json", got=error
                                ) from None
    unknown = set(modules) - {"Transformer", "Pooling", "Normalize"}
    if unknown:
        raise UnsupportedModelError("modules behind the encoder are not supported", where=folder,
                                    expected="Transformer, Pooling, Normalize",
                                    got=", ".join(sorted(unknown)))
    return _pooling(folder / "1_Pooling" / "config.json"), "Normalize" in modules


def _pooling(path: Path) -> Pooling:
    fields = read_json(path) if path.exists() else {"pooling_mode_mean_tokens": True}
    names: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token":
                                 "cls", "pooling_mode_max_tokens": "max",
                                 "pooling_mode_lasttoken": "last"}
    given = [name for name, value in fields.items()
             if name.startswith("pooling_mode_") and value is True]
    if len(given) != 1 or given[0] not in names:
        raise UnsupportedModelError("a pooling of the states is not supported", where=path,
                                    expected="one of " + ", ".join(names), got=", ".join(given))
    return names[given[0]]


def _number(path: Path, name: str) -> int | None:
    found = read_json(path).get(name) if path.exists() else None
    return found if type(found) is int and found > 0 else None
