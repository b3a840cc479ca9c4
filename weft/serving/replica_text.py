"""A ``TextModel`` whose decoders are in ``Replicas``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.generation.text.language_model import LanguageModel
from weft.generation.text.load import read_files
from weft.serving.language_text import LanguageText
from weft.serving.replica_decoder import ReplicaDecoder
from weft.serving.replica_worker import TextSource, open_text
from weft.serving.replicas import Replicas


def open_replicated_text(replicas: Replicas, source: TextSource) -> LanguageText:
    """The language model of a source: its tokenizer here, a decoder in each process."""
    files = read_files(Path(source.path))
    replicas.everywhere(open_text, source)
    decoders = [ReplicaDecoder(replicas, name, source) for name in replicas.names]
    here: Any = decoders[0]
    model = LanguageModel(here, files.tokenizer, template=files.template)
    return LanguageText(model, here.cached_prompts, decoders)
