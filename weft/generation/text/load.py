"""``weft.models.load``: a language model from its files, without torch or transformers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from weft.generation.text.adapted_model import AdaptedWeights
from weft.generation.text.chat_template import ChatTemplate
from weft.generation.text.gguf_tokenizer import gguf_tokenizer
from weft.generation.text.language_model import LanguageModel
from weft.generation.text.prompt_cache import identity_of
from weft.generation.text.tokenizer import Tokenizer
from weft.models.adapters import RowsByName, rows_of_family
from weft.models.architecture import Architecture, Weights
from weft.models.compiled_decoder import CompiledDecoder
from weft.models.gguf.reader import read_gguf
from weft.models.gguf.translate import architecture_of_gguf, rows_of_gguf
from weft.models.transformers.folder import architecture_of_folder, read_json
from weft.runtime.weights import Tensors
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, OptionError

# A longer context is used when it is asked for: its caches take memory.
DEFAULT_CAPACITY = 4096
# Beside weights in blocks: as llama.cpp and onnxruntime multiply, at a fourth of the arithmetic.
DEFAULT_ACTIVATIONS = "int8"


@dataclass(frozen=True)
class ModelFiles:
    """What the files of a model hold; ``context`` is the number of tokens it was trained for,
    ``rows`` the names of its modules for adapters.
    """

    architecture: Architecture
    weights: Weights
    tokenizer: Tokenizer
    template: ChatTemplate | None
    context: int | None
    rows: RowsByName | None


def load(path: str | Path, *, capacity: int | None = None, batch: int = 1,
         dtype: str | None = None, adapters: Sequence[Tensors] = (), lora_rank: int | None = None,
         activations: str | None = None, precision: str | None = None,
         scheme: str | None = None, data: Iterable[str] = (), **knobs: Any) -> LanguageModel:
    """A language model of a Hugging Face folder or of a GGUF file, ready to generate text.

        model = weft.models.load("SmolLM2-135M-Instruct")
        model.generate("The capital of France is", max_tokens=8)

    A folder has ``config.json``, weights in safetensors files, and ``tokenizer.json``; a GGUF file
    has all in one, and its quantised weights stay in their blocks. ``capacity`` is the largest
    number of tokens of a text with its continuation (the model's context, at most 4096, by
    default); ``dtype`` (float32, bfloat16, float16) that of weights, activations and
    caches: by default that of the files. ``knobs`` are settings of ``weft.compile``.

    ``adapters`` are low-rank adapters as ``LanguageModel.apply_lora`` takes them; they are added to
    the weights, or run beside those in blocks. ``lora_rank`` is the total rank of adapters that may
    run beside weights (by default that of ``adapters`` where weights are in blocks).
    ``activations`` is what products with weights in blocks read: ``int8`` in groups of 32, unless
    it is ``float32``; ``explain()`` lists what was chosen.

    ``precision`` (bf16, fp16, int8, int4) is that of matrices, which are quantised as they are
    read; ``scheme`` names the way, such as ``int4_gptq``, and ``data`` are texts that it reads
    (docs/quantization.md).

    Needs the packages of ``weft[language]``. Raises ``UnsupportedModelError`` for models of a kind
    that weft does not know, and ``InvalidModelError`` for damaged files.
    """
    files = read_files(Path(path))
    if precision is not None or scheme is not None:
        files, dtype = _in_precision(files, precision, scheme, data, dtype)
    weights = AdaptedWeights(files.weights, files.rows)
    found = [weights.read(adapter, 1.0) for adapter in adapters]
    if lora_rank is None:
        lora_rank = sum(a.rank for a in found) if weights.needs_inputs(found) else 0
    if lora_rank == 0:
        weights.adapters = tuple(found)
    options: dict[str, Any] = {
        "capacity": capacity or min(files.context or DEFAULT_CAPACITY, DEFAULT_CAPACITY),
        "dtype": dtype or files.weights.dtype, "adapter_rank": lora_rank,
        "activations": activations or DEFAULT_ACTIVATIONS, **knobs}
    decoder = CompiledDecoder(files.architecture, weights.merged(), batch=batch, **options)
    if lora_rank:
        weights.use(decoder, found)
    return LanguageModel(
        decoder, files.tokenizer, template=files.template, weights=weights,
        make_encoder=lambda merged: CompiledDecoder(files.architecture, merged.without_output(),
                                                    **options),
        identity=identity_of(files.architecture, files.weights))


def _in_precision(files: ModelFiles, precision: str | None, scheme: str | None,
                  data: Iterable[str], dtype: str | None) -> tuple[ModelFiles, str | None]:
    """The files with quantised weights, or the dtype that a precision of floats means."""
    floats = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    schemes = {"int8": "int8_weight_only", "int4": "int4"}
    if precision is not None and precision not in (*floats, *schemes):
        raise OptionError("unknown precision", expected=", ".join((*floats, *schemes)),
                          got=repr(precision))
    if precision in floats and scheme is None:
        return files, dtype or floats[precision]
    chosen = scheme or schemes.get(precision or "", "")
    from weft.quantization.language import quantize_weights

    texts = [files.tokenizer.encode(text) for text in data]
    weights = quantize_weights(files.architecture, files.weights, chosen, texts or None)
    return replace(files, weights=weights), dtype


def read_files(path: Path) -> ModelFiles:
    """The contents of a folder or a file; ``InvalidModelError`` if there is none."""
    if path.is_dir():
        return _read_folder(path)
    if path.is_file():
        return _read_gguf(path)
    raise InvalidModelError("no such model", where=path, expected="a GGUF file, or a folder with "
                            "config.json and safetensors files")


def _read_gguf(path: Path) -> ModelFiles:
    file = read_gguf(path)
    architecture, weights = architecture_of_gguf(file)
    metadata = file.metadata
    tokenizer = gguf_tokenizer(metadata, architecture.vocab_size)
    names = {"bos_token": tokenizer.bos, "eos_token": metadata.get("tokenizer.ggml.eos_token_id")}
    tokens = {name: tokenizer.text_of(token) for name, token in names.items()}
    template = metadata.get("tokenizer.chat_template")
    kind = metadata["general.architecture"]
    return ModelFiles(
        architecture, weights, tokenizer,
        ChatTemplate(template, tokens) if isinstance(template, str) else None,
        _context({"max_position_embeddings": metadata.get(f"{kind}.context_length")},
                 architecture), rows_of_gguf(kind, architecture))


def _read_folder(folder: Path) -> ModelFiles:
    architecture, weights = architecture_of_folder(folder)
    config = read_json(folder / "config.json")
    settings = _optional_json(folder / "tokenizer_config.json")
    bos, eos = (_token_text(settings.get(name)) for name in ("bos_token", "eos_token"))
    tokenizer = Tokenizer.of_file(folder / "tokenizer.json", bos=bos,
                                  eos=() if eos is None else (eos,))
    ends = (_optional_json(folder / "generation_config.json").get("eos_token_id"),
            config.get("eos_token_id"))
    tokenizer.eos |= {token for field in ends for token in _tokens(field)
                      if 0 <= token < architecture.vocab_size}
    tokens = {name: text for name, text in (("bos_token", bos), ("eos_token", eos))
              if text is not None}
    return ModelFiles(architecture, weights, tokenizer,
                      _template(folder, settings.get("chat_template"), tokens),
                      _context(config, architecture),
                      rows_of_family(config["model_type"], architecture))


def _context(config: Mapping[str, Any], architecture: Architecture) -> int | None:
    found = config.get("max_position_embeddings", architecture.max_positions)
    return found if type(found) is int and found > 0 else architecture.max_positions


def _template(folder: Path, given: Any, tokens: Mapping[str, str]) -> ChatTemplate | None:
    """The template of ``chat_template.jinja``, or of the tokenizer's settings."""
    path = folder / "chat_template.jinja"
    if path.exists():
        given = path.read_text(encoding="utf-8", errors="replace")
    if isinstance(given, list):  # named templates
        named = {entry.get("name"): entry.get("template") for entry in given
                 if isinstance(entry, dict)}
        given = named.get("default")
    return ChatTemplate(given, tokens) if isinstance(given, str) else None


def _tokens(field: Any) -> Iterable[int]:
    values = field if isinstance(field, list) else [field]
    return [value for value in values if type(value) is int]


def _token_text(field: Any) -> str | None:
    text = field.get("content") if isinstance(field, dict) else field
    return text if isinstance(text, str) else None


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
