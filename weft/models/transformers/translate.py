"""Architecture and weights of a decoder, by the description of its family."""

from __future__ import annotations

import itertools
import math

import numpy as np

from weft.models.architecture import Architecture, BlockWeight, Layer, Weights
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.families import Family
from weft.models.transformers.rope import rotary_of
from weft.models.transformers.source import Source
from weft.support.errors import InvalidModelError, UnsupportedModelError

_LOCAL = "sliding_attention"
_WIDTH = ("hidden_size", "n_embd", "n_embed")


def translate(config: Configuration, source: Source, family: Family
              ) -> tuple[Architecture, Weights]:
    """The decoder of a configuration; raises ``UnsupportedModelError`` for what weft lacks."""
    for name, values in family.needs.items():
        if config.get(name) not in values:
            raise config.refuse(f"the field {name} = {config.get(name)!r}",
                                expected=" or ".join(map(repr, values)))
    architecture = _architecture(config, family)
    _take_weights(config, source, family, architecture)
    return architecture, Weights(source.arrays)


def _architecture(config: Configuration, family: Family) -> Architecture:
    width, heads = config.size(*_WIDTH), config.size("num_attention_heads", "n_head")
    given = config.get("head_dim")
    head_dim = width // heads if given is None else config.size("head_dim")
    layers, learned = config.size("num_hidden_layers", "n_layer"), family.positions == "learned"
    parallel = (family.parallel if isinstance(family.parallel, bool)
                else any(config.get(name) for name in family.parallel))
    is_mixture = config.get("num_experts_per_tok") is not None
    return Architecture(
        vocab_size=config.size("vocab_size"), hidden_size=width, heads=heads,
        kv_heads=_kv_heads(config, heads), head_dim=head_dim,
        layers=tuple(_layer(config, family, i, layers, head_dim) for i in range(layers)),
        norm=family.norm,
        epsilon=config.number("rms_norm_eps" if family.norm == "rms" else "layer_norm_eps",
                              "layer_norm_epsilon"),
        activation=config.activation(*family.activations), parallel=parallel,
        alibi_slopes=alibi_slopes(heads) if family.positions == "alibi" else (),
        softcap=config.get("attn_logit_softcapping") or 0.0,
        logit_softcap=config.get("final_logit_softcapping") or 0.0,
        embedding_scale=width ** 0.5 if family.scaled_embedding else 1.0,
        experts=config.size("num_experts_per_tok") if is_mixture else 0,
        max_positions=config.size("n_positions", "max_position_embeddings") if learned else None)


def _kv_heads(config: Configuration, heads: int) -> int:
    if config.get("multi_query") is not None and not config.get("new_decoder_architecture"):
        # The first models of Falcon have a field for the number of heads that does not count.
        return 1 if config.get("multi_query") else heads
    found = config.get("num_key_value_heads", "num_kv_heads")
    if found is None:
        return heads
    found = config.size("num_key_value_heads", "num_kv_heads")
    if heads % found:
        raise config.invalid("num_key_value_heads", f"a divisor of {heads}", found)
    return found


def _layer(config: Configuration, family: Family, number: int, layers: int, head_dim: int) -> Layer:
    kind = _layer_type(config, number, layers)
    window = config.size("sliding_window") if kind == _LOCAL else None
    rotates = family.positions == "rotary" and _rotates(config, number, layers)
    scale = (config.number("query_pre_attn_scalar")
             if config.get("query_pre_attn_scalar") is not None else head_dim) ** -0.5
    if config.get("scale_attn_by_inverse_layer_idx"):
        scale /= number + 1
    return Layer(scale=scale, window=window,
                 rotary=rotary_of(config, head_dim, kind) if rotates else None)


def _layer_type(config: Configuration, number: int, layers: int) -> str:
    """Whether a layer has a window: by a list, by a pattern, or all layers of some models."""
    types = config.per_layer("layer_types", layers)
    if types is not None:
        return str(types[number])
    has_window = (config.get("sliding_window") is not None
                  and config.get("use_sliding_window") is not False)
    pattern = config.get("sliding_window_pattern")
    if pattern is not None:
        has_window &= (number + 1) % config.size("sliding_window_pattern") != 0
    first = config.get("max_window_layers") if config.get("use_sliding_window") else None
    if first is not None:
        has_window &= number >= config.size("max_window_layers")
    return _LOCAL if has_window else "full_attention"


def _rotates(config: Configuration, number: int, layers: int) -> bool:
    flags = config.per_layer("no_rope_layers", layers)
    if flags is not None:
        return bool(flags[number])
    every = config.get("no_rope_layer_interval")
    return every is None or (number + 1) % config.size("no_rope_layer_interval") != 0


def _take_weights(config: Configuration, source: Source, family: Family,
                  architecture: Architecture) -> None:
    for theirs, ours in family.model.items():
        source.take(theirs, ours, offset=family.norm_offset if "norm" in ours else 0.0)
    # The library renames what files of some models call otherwise.
    output = next((name for name in (family.output, "lm_head") if f"{name}.weight" in source),
                  family.output)
    source.take_output(output, tied=bool(config.get("tie_word_embeddings")))
    for number in range(len(architecture.layers)):
        _take_layer(source, family, architecture, number)
        _take_experts(source, f"{family.layers}.{number}", f"layers.{number}")
    _check_weights(config, source, family, architecture)


def _take_layer(source: Source, family: Family, architecture: Architecture, number: int) -> None:
    prefix, target = f"{family.layers}.{number}", f"layers.{number}"
    for theirs, ours in family.layer.items():
        source.take(f"{prefix}.{theirs}", f"{target}.{ours}", transposed=family.transposed,
                    offset=family.norm_offset if "norm" in ours else 0.0)
    if family.qkv:
        _split_qkv(source, family, architecture, f"{prefix}.{family.qkv}", target)
    if f"{prefix}.{family.gate_up}.weight" in source:
        both = source.array(f"{prefix}.{family.gate_up}.weight")
        for name, half in zip(("gate", "up"), np.split(both, 2), strict=True):
            source.arrays[f"{target}.{name}.weight"] = half


def rows_by_name(family: Family, architecture: Architecture, module: str, rows: np.ndarray
                 ) -> dict[str, np.ndarray]:
    """The rows of a matrix of ``module``, by the weights that hold them; none if none does."""
    source = Source({f"{module}.weight": lambda: rows}, None, module)
    for number in range(len(architecture.layers)):
        if f".{number}." in f".{module}.":
            _take_layer(source, family.but(transposed=False), architecture, number)
    return {name.removesuffix(".weight"): found for name, found in source.arrays.items()}


def _split_qkv(source: Source, family: Family, architecture: Architecture, theirs: str, ours: str
               ) -> None:
    heads, kv_heads, size = (architecture.heads, architecture.kv_heads, architecture.head_dim)
    for kind in ("weight", "bias"):
        if f"{theirs}.{kind}" not in source:
            continue
        value = source.weight(f"{theirs}.{kind}")
        if isinstance(value, np.ndarray) and family.transposed and kind == "weight":
            value = value.T
        if value.shape[0] != (heads + 2 * kv_heads) * size:
            raise InvalidModelError(f"a fused matrix {theirs!r} of a wrong size", where=source.kind,
                                    expected=f"{(heads + 2 * kv_heads) * size} rows",
                                    got=value.shape)
        if family.qkv_rows == "together":
            ends = (0, heads * size, (heads + kv_heads) * size, (heads + 2 * kv_heads) * size)
            parts = [value[slice(*pair)] for pair in itertools.pairwise(ends)]
        elif isinstance(value, BlockWeight):
            raise UnsupportedModelError(f"the weight {theirs!r}, whose rows are grouped by head, "
                                        "is not supported in blocks", where=source.kind)
        else:
            grouped = value.reshape(kv_heads, heads // kv_heads + 2, size, *value.shape[1:])
            parts = [part.reshape(-1, *value.shape[1:]) for part in
                     (grouped[:, :-2], grouped[:, -2], grouped[:, -1])]
        for name, part in zip("qkv", parts, strict=True):
            source.arrays[f"{ours}.{name}.{kind}"] = (
                np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part)


def _take_experts(source: Source, theirs: str, ours: str) -> None:
    """The matrices of all experts: together, or each expert by itself, as Mixtral's files."""
    if f"{theirs}.mlp.experts.gate_up_proj" in source:
        source.take(f"{theirs}.mlp.gate", f"{ours}.router")
        both = source.array(f"{theirs}.mlp.experts.gate_up_proj")
        width = both.shape[1] // 2
        for name, value in (("gate", both[:, :width]), ("up", both[:, width:]),
                            ("down", source.array(f"{theirs}.mlp.experts.down_proj"))):
            source.arrays[f"{ours}.experts_{name}.weight"] = value
    for mixture, names in ((f"{theirs}.block_sparse_moe", ("w1", "w3", "w2")),
                           (f"{theirs}.mlp", ("gate_proj", "up_proj", "down_proj"))):
        if f"{mixture}.experts.0.{names[0]}.weight" not in source:
            continue
        source.take(f"{mixture}.gate", f"{ours}.router")
        count = len(source.arrays[f"{ours}.router.weight"])
        for name, new in zip(names, ("gate", "up", "down"), strict=True):
            source.arrays[f"{ours}.experts_{new}.weight"] = np.stack(
                [source.array(f"{mixture}.experts.{i}.{name}.weight") for i in range(count)])


def _check_weights(config: Configuration, source: Source, family: Family,
                   architecture: Architecture) -> None:
    """Every norm has a weight, and the matrices the sizes of the configuration."""
    a = architecture
    wanted = {"embedding": (a.vocab_size, a.hidden_size), "output": (a.vocab_size, a.hidden_size)}
    for number in range(len(a.layers)):
        wanted |= {f"layers.{number}.{name}": (heads * a.head_dim, a.hidden_size)
                   for name, heads in (("q", a.heads), ("k", a.kv_heads), ("v", a.kv_heads))}
        wanted[f"layers.{number}.attention_output"] = (a.hidden_size, a.heads * a.head_dim)
    for name, shape in wanted.items():
        found = source.arrays.get(f"{name}.weight")
        if found is None:
            raise config.invalid(name, f"a weight of the shape {shape}", "no such weight")
        if found.shape != shape:
            raise config.invalid(name, f"a weight of the shape {shape}", found.shape)
    if family.unit_norms:
        norms = [f"layers.{i}.{name}" for i in range(len(a.layers))
                 for name in ("attention_norm", "mlp_norm")]
        for name in ("final_norm", *norms):
            source.arrays.setdefault(f"{name}.weight", np.ones(a.hidden_size, np.float32))


def alibi_slopes(heads: int) -> tuple[float, ...]:
    """The slopes of ALiBi: a geometric sequence, interleaved with a second one (Press et al.)."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 / power * (i + 1)) for i in range(power)]
    extra = [2 ** (-4 / power * (2 * i + 1)) for i in range(heads - power)]
    return (*slopes, *extra)
