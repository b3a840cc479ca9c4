"""Decoders from GGUF files: architectures as data, weights as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from weft.models.adapters import RowsByName, rows_of_family
from weft.models.architecture import (
    Activation,
    Architecture,
    BlockWeight,
    Layer,
    Rotary,
    Weights,
)
from weft.models.gguf.reader import GgufFile
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.rope import rotary_of
from weft.models.transformers.translate import alibi_slopes
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.support.fallback import Fallback, report
from weft.topi.nn.block_formats import block_format
from weft.topi.nn.block_quantized import dequantized


@dataclass(frozen=True, kw_only=True)
class GgufFamily:
    """What an architecture of GGUF computes beyond what its tensors and metadata say."""

    norm: Literal["layer", "rms"] = "rms"
    activation: Activation = "silu"
    interleaved: bool = False
    positions: Literal["rotary", "alibi", "learned"] = "rotary"
    parallel: bool | str = False  # or the field that says so
    scaled_embedding: bool = False
    unit_norms: bool = False
    local_layers: int = 0  # every n-th layer sees all positions, the others a window
    local_base: float | None = None  # of the rotary embedding of layers with a window
    # The model of so many layers scales scores by the width per head, not by the size of a head.
    wide_scale_layers: int = 0


FAMILIES: dict[str, GgufFamily] = {
    "bloom": GgufFamily(norm="layer", activation="gelu_tanh", positions="alibi"),
    "gemma": GgufFamily(activation="gelu_tanh", scaled_embedding=True),
    "falcon": GgufFamily(norm="layer", activation="gelu", parallel=True),
    "gemma2": GgufFamily(activation="gelu_tanh", scaled_embedding=True, local_layers=2,
                         wide_scale_layers=46),
    "gemma3": GgufFamily(activation="gelu_tanh", scaled_embedding=True, local_layers=6,
                         local_base=1e4, wide_scale_layers=62),
    "gpt2": GgufFamily(norm="layer", activation="gelu_tanh", positions="learned"),
    "gptneox": GgufFamily(norm="layer", activation="gelu", parallel="use_parallel_residual"),
    "llama": GgufFamily(interleaved=True),
    "olmo": GgufFamily(norm="layer", interleaved=True, unit_norms=True),
    "olmo2": GgufFamily(),
    "phi2": GgufFamily(norm="layer", activation="gelu_tanh", parallel=True),
    "phi3": GgufFamily(),
    "qwen2": GgufFamily(),
    "qwen3": GgufFamily(),
    "qwen3moe": GgufFamily(),
    "stablelm": GgufFamily(norm="layer", parallel="use_parallel_residual"),
}
_MODEL = {"token_embd": "embedding", "position_embd": "position_embedding",
          "token_embd_norm": "embedding_norm", "output_norm": "final_norm", "output": "output"}
_LAYER = {"attn_norm": "attention_norm", "attn_q": "q", "attn_k": "k", "attn_v": "v",
          "attn_q_norm": "q_norm", "attn_k_norm": "k_norm", "attn_output": "attention_output",
          "post_attention_norm": "attention_post_norm", "ffn_norm": "mlp_norm", "ffn_gate": "gate",
          "ffn_up": "up", "ffn_down": "down", "post_ffw_norm": "mlp_post_norm",
          "ffn_gate_inp": "router"}
_EXPERTS = {f"ffn_{name}_exps": f"experts_{name}" for name in ("gate", "up", "down")}
_FIELDS = {  # ours -> the key after the name of the architecture
    "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length", "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon", "rope_theta": "rope.freq_base",
    "rotary_dimensions": "rope.dimension_count", "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping", "experts": "expert_count",
    "experts_used": "expert_used_count", "use_parallel_residual": "use_parallel_residual",
    "clamp": "attention.clamp_kqv",
    "scaling": "rope.scaling.type", "factor": "rope.scaling.factor",
    "original_max_position_embeddings": "rope.scaling.original_context_length",
}


def architecture_of_gguf(file: GgufFile) -> tuple[Architecture, Weights]:
    """Architecture and weights; quantised matrices stay in their blocks."""
    kind = file.metadata.get("general.architecture")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise UnsupportedModelError(f"GGUF models of the architecture {kind!r} are not supported",
                                    where=file.path, expected=", ".join(FAMILIES))
    family, config = FAMILIES[kind], _configuration(file, kind)
    if config.get("clamp"):
        raise config.refuse("a bound of queries, keys and values")
    arrays = _renamed(file, config)
    if family.unit_norms:
        ones = np.ones(config.size("hidden_size"), np.float32)
        names = ("attention_norm", "mlp_norm")
        arrays |= {f"layers.{number}.{name}.weight": ones for name in names
                   for number in range(config.size("num_hidden_layers"))}
        arrays["final_norm.weight"] = ones
    return _architecture(file, config, family, arrays), Weights(arrays)


# The type of a model in transformers, whose names adapters have.
_TRANSFORMERS = {"gemma3": "gemma3_text", "gptneox": "gpt_neox", "phi2": "phi",
                 "qwen3moe": "qwen3_moe"}


def rows_of_gguf(kind: str, architecture: Architecture) -> RowsByName | None:
    """The names of adapters of a model: those of its type in transformers.

    Rows of queries and keys are in the order of the file, where pairs of rotary embeddings are
    neighbours.
    """
    named = rows_of_family(_TRANSFORMERS.get(kind, kind), architecture)
    if named is None or not FAMILIES[kind].interleaved:
        return named
    heads = {"q": architecture.heads, "k": architecture.kv_heads}

    def rows(module: str, matrix: np.ndarray) -> dict[str, np.ndarray]:
        found = dict(named(module, matrix))
        for name, part in found.items():
            count = heads.get(name.rpartition(".")[2])
            if count and len(part) % (2 * count) == 0:
                halves = part.reshape(count, 2, -1, part.shape[1])
                found[name] = halves.swapaxes(1, 2).reshape(part.shape)
        return found

    return rows


def _configuration(file: GgufFile, kind: str) -> Configuration:
    fields = {ours: file.metadata[f"{kind}.{theirs}"] for ours, theirs in _FIELDS.items()
              if f"{kind}.{theirs}" in file.metadata}
    scaling = fields.pop("scaling", "none")
    rope: dict[str, Any] = {"rope_theta": fields.get("rope_theta", 10000.0)}
    if scaling != "none":
        rope |= {name: fields[name] for name in ("factor", "original_max_position_embeddings")
                 if name in fields}
        rope["rope_type"] = scaling
    embedding = file.tensors.get("token_embd.weight")
    if embedding is not None and len(embedding.shape) == 2:
        fields["vocab_size"] = int(embedding.shape[0])
    return Configuration({**fields, "rope_parameters": rope}, kind, {})


def _architecture(file: GgufFile, config: Configuration, family: GgufFamily,
                  arrays: Mapping[str, np.ndarray | BlockWeight]) -> Architecture:
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    has_kv = config.get("num_key_value_heads") is not None
    kv_heads = config.size("num_key_value_heads") if has_kv else heads
    head_dim = config.size("head_dim") if config.get("head_dim") else width // heads
    learned = arrays.get("position_embedding.weight")
    rotary = _rotary(file, config, family, head_dim) if family.positions == "rotary" else None
    local = rotary if family.local_base is None else rotary_of(
        Configuration({"rope_theta": family.local_base}, config.kind, {}), head_dim, None)
    wide = config.size("num_hidden_layers") == family.wide_scale_layers
    window = config.get("sliding_window")

    def layer(number: int) -> Layer:
        is_local = family.local_layers and (number + 1) % family.local_layers
        return Layer(scale=(width // heads if wide else head_dim) ** -0.5,
                     rotary=local if is_local else rotary,
                     window=config.size("sliding_window") if window and is_local else None)

    made = Architecture(
        vocab_size=config.size("vocab_size"), hidden_size=width, heads=heads, kv_heads=kv_heads,
        head_dim=head_dim, layers=tuple(map(layer, range(config.size("num_hidden_layers")))),
        norm=family.norm, activation=family.activation,
        parallel=(bool(config.get(family.parallel)) if isinstance(family.parallel, str)
                  else family.parallel),
        experts=config.size("experts_used") if config.get("experts") else 0,
        epsilon=config.number("rms_norm_eps" if family.norm == "rms" else "layer_norm_eps"),
        alibi_slopes=alibi_slopes(heads) if family.positions == "alibi" else (),
        softcap=config.get("attn_logit_softcapping") or 0.0,
        logit_softcap=config.get("final_logit_softcapping") or 0.0,
        embedding_scale=width ** 0.5 if family.scaled_embedding else 1.0,
        max_positions=None if learned is None else learned.shape[0])
    _check(made, config, arrays)
    return made


def _rotary(file: GgufFile, config: Configuration, family: GgufFamily, head_dim: int) -> Rotary:
    width = (config.size("rotary_dimensions") if config.get("rotary_dimensions") else head_dim)
    if width > head_dim:
        raise config.invalid("rope.dimension_count", f"at most {head_dim}", width)
    made = rotary_of(config, width, None)
    factors = file.tensors.get("rope_freqs.weight")  # Llama 3 divides each frequency
    frequencies = made.frequencies
    if isinstance(factors, np.ndarray):
        if factors.shape != (len(frequencies),):
            raise config.invalid("rope_freqs", f"{len(frequencies)} factors", factors.shape)
        frequencies = tuple(f / float(d) for f, d in zip(frequencies, factors, strict=True))
    return Rotary(frequencies, made.factor, interleaved=family.interleaved)


def _renamed(file: GgufFile, config: Configuration) -> dict[str, np.ndarray | BlockWeight]:
    found: dict[str, np.ndarray | BlockWeight] = {}

    def take(theirs: str, ours: str) -> None:
        for kind in ("weight", "bias"):
            if f"{theirs}.{kind}" in file.tensors:
                found[f"{ours}.{kind}"] = file.tensors[f"{theirs}.{kind}"]

    for theirs, ours in _MODEL.items():
        take(theirs, ours)
    if "output.weight" not in found and "embedding.weight" in found:
        found["output.weight"] = found["embedding.weight"]
    heads = config.size("num_attention_heads")
    has_kv = config.get("num_key_value_heads") is not None
    kv_heads = config.size("num_key_value_heads") if has_kv else heads
    for number in range(config.size("num_hidden_layers")):
        for theirs, ours in _LAYER.items():
            take(f"blk.{number}.{theirs}", f"layers.{number}.{ours}")
        if f"layers.{number}.attention_output.weight" not in found:
            raise config.invalid("block_count", f"{number} layers", "no tensors of others")
        if f"blk.{number}.attn_norm_2.weight" in file.tensors:  # the other norm is the MLP's
            take(f"blk.{number}.attn_norm", f"layers.{number}.mlp_norm")
            take(f"blk.{number}.attn_norm_2", f"layers.{number}.attention_norm")
        for theirs, ours in _EXPERTS.items() if config.get("experts") else ():
            name = f"blk.{number}.{theirs}.weight"
            if name not in file.tensors:
                raise config.refuse(f"experts without the tensor {name!r}")
            found[f"layers.{number}.{ours}.weight"] = _floats(file.tensors[name], name)
        _split(file.tensors, f"blk.{number}.attn_qkv", found, f"layers.{number}.",
               {"q": heads, "k": kv_heads, "v": kv_heads})
        if f"blk.{number}.ffn_gate.weight" not in file.tensors and config.kind == "phi3":
            _split(file.tensors, f"blk.{number}.ffn_up", found, f"layers.{number}.",
                   {"gate": 1, "up": 1})
    return found


def _floats(matrices: np.ndarray | BlockWeight, name: str) -> np.ndarray:
    """The matrices of experts, which are multiplied as floats."""
    if not isinstance(matrices, BlockWeight):
        return matrices
    found = dequantized(matrices.data, block_format(matrices.format))
    report(Fallback(f"the experts {name!r} are expanded to float32 as the file is read",
                    f"products of experts read floats, and the file has {matrices.format}",
                    f"{found.nbytes} bytes of memory for {matrices.nbytes}",
                    "use a file whose experts are F16 or BF16, or a model without experts"))
    return found


def _split(tensors: Mapping[str, np.ndarray | BlockWeight], name: str,
           found: dict[str, np.ndarray | BlockWeight], prefix: str, parts: Mapping[str, int]
           ) -> None:
    """Rows of one tensor as several, in the ratio of ``parts``."""
    for kind in ("weight", "bias"):
        value = tensors.get(f"{name}.{kind}")
        if value is None:
            continue
        rows, total = value.shape[0], sum(parts.values())
        if rows % total:
            raise InvalidModelError(f"a tensor {name!r} that cannot be split", got=value.shape)
        start = 0
        for part, share in parts.items():
            end = start + rows // total * share
            found[f"{prefix}{part}.{kind}"] = value[start:end]
            start = end


def _check(a: Architecture, config: Configuration, arrays: Mapping[str, np.ndarray | BlockWeight]
           ) -> None:
    """The matrices have the sizes of the metadata."""
    wanted: dict[str, tuple[int, ...]] = {
        "embedding": (a.vocab_size, a.hidden_size), "output": (a.vocab_size, a.hidden_size)}
    for number in range(len(a.layers)):
        wanted |= {f"layers.{number}.{name}": (heads * a.head_dim, a.hidden_size)
                   for name, heads in (("q", a.heads), ("k", a.kv_heads), ("v", a.kv_heads))}
        wanted[f"layers.{number}.attention_output"] = (a.hidden_size, a.heads * a.head_dim)
        if a.experts:
            experts = config.size("experts")
            wanted[f"layers.{number}.router"] = (experts, a.hidden_size)
            if a.experts > experts:
                raise config.invalid("expert_used_count", f"at most {experts}", a.experts)
    for name, shape in wanted.items():
        found = arrays.get(f"{name}.weight")
        if found is None or tuple(found.shape) != shape:
            raise config.invalid(name, f"a weight of the shape {shape}",
                                 None if found is None else found.shape)
