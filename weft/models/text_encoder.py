"""Encoders of texts (BERT, Devlin et al., 2018): their weights, and a program for a batch of texts.

Names of weights are those of decoders; norms follow the sums of their sub-layers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft import ir, op
from weft.ir import Expr, Function, IRModule, var
from weft.models.architecture import Architecture, BlockWeight, Layer, Weights
from weft.models.gguf.reader import GgufFile
from weft.models.layers import (
    LayerWeights,
    Products,
    dense,
    embed,
    heads_first,
    merge_heads,
    mlp,
    normalize,
    split_heads,
)
from weft.models.transformers.configuration import Configuration
from weft.models.transformers.source import Source
from weft.support.errors import InvalidModelError

Arrays = dict[str, "np.ndarray | BlockWeight"]

FOLDER_TYPES = GGUF_TYPES = ("bert",)
_MODEL = {"embeddings.word_embeddings": "embedding", "embeddings.LayerNorm": "embedding_norm",
          "embeddings.position_embeddings": "position_embedding",
          "embeddings.token_type_embeddings": "token_type"}
_LAYER = {"attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v",
          "attention.output.dense": "attention_output",
          "attention.output.LayerNorm": "attention_norm", "intermediate.dense": "up",
          "output.dense": "down", "output.LayerNorm": "mlp_norm"}
_GGUF_MODEL = {"token_embd": "embedding", "token_embd_norm": "embedding_norm",
               "position_embd": "position_embedding", "token_types": "token_type"}
_GGUF_LAYER = {"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "attention_output",
               "attn_output_norm": "attention_norm", "ffn_up": "up", "ffn_down": "down",
               "layer_output_norm": "mlp_norm"}


def encoder_of_source(config: Configuration, source: Source) -> tuple[Architecture, Weights]:
    """The encoder of a folder of Hugging Face."""
    for name, expected in (("position_embedding_type", "absolute"), ("is_decoder", False)):
        if config.get(name) not in (None, expected):
            raise config.refuse(f"the field {name} = {config.get(name)!r}", expected=expected)
    for theirs, ours in _MODEL.items():
        source.take(f"bert.{theirs}", ours)
    for number in range(config.size("num_hidden_layers")):
        for theirs, ours in _LAYER.items():
            source.take(f"bert.encoder.layer.{number}.{theirs}", f"layers.{number}.{ours}")
    return _checked(config, dict(source.arrays))


def encoder_of_gguf(file: GgufFile) -> tuple[Architecture, Weights]:
    """The encoder of a GGUF file; matrices stay in their blocks."""
    fields = {ours: file.metadata.get(f"bert.{theirs}") for ours, theirs in (
        ("hidden_size", "embedding_length"), ("num_hidden_layers", "block_count"),
        ("num_attention_heads", "attention.head_count"),
        ("layer_norm_eps", "attention.layer_norm_epsilon"))}
    config = Configuration({**fields, "hidden_act": "gelu"}, "bert", {})
    names = dict(_GGUF_MODEL)
    for number in range(config.size("num_hidden_layers")):
        names |= {f"blk.{number}.{theirs}": f"layers.{number}.{ours}"
                  for theirs, ours in _GGUF_LAYER.items()}
    return _checked(config, {
        f"{ours}.{kind}": file.tensors[f"{theirs}.{kind}"] for theirs, ours in names.items()
        for kind in ("weight", "bias") if f"{theirs}.{kind}" in file.tensors})


def _checked(config: Configuration, arrays: Arrays) -> tuple[Architecture, Weights]:
    """Architecture and weights, whose sizes fit; texts have one type, added to the positions."""
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    if width % heads:
        raise config.invalid("num_attention_heads", f"a divisor of {width}", heads)
    names = ("embedding", "position_embedding", "embedding_norm")
    wanted: dict[str, tuple[int | None, ...]] = {
        "embedding": (None, width), "position_embedding": (None, width), "embedding_norm": (width,)}
    for number in range(config.size("num_hidden_layers")):
        sizes = {"q": (width, width), "k": (width, width), "v": (width, width),
                 "attention_output": (width, width), "attention_norm": (width,),
                 "up": (None, width), "down": (width, None), "mlp_norm": (width,)}
        wanted |= {f"layers.{number}.{name}": shape for name, shape in sizes.items()}
    for name, shape in wanted.items():
        found = arrays.get(f"{name}.weight")
        if found is None or len(found.shape) != len(shape) or any(
                size not in (None, got) for size, got in zip(shape, found.shape, strict=True)):
            raise config.invalid(name, f"a weight of the shape {shape}",
                                 "no such weight" if found is None else found.shape)
    positions, types = (_floats(arrays, f"{name}.weight") for name in (names[1], "token_type"))
    if types is not None and positions is not None:
        if types.ndim != 2 or types.shape[1] != width or not len(types):
            raise config.invalid("token_type", f"rows of {width}", types.shape)
        arrays["position_embedding.weight"] = positions + types[0]
    weights = Weights({name: value for name, value in arrays.items()
                       if not name.startswith("token_type")})
    made = Architecture(
        vocab_size=weights.shape_of("embedding.weight")[0], hidden_size=width, heads=heads,
        kv_heads=heads, head_dim=width // heads,
        layers=(Layer(scale=(width // heads) ** -0.5),) * config.size("num_hidden_layers"),
        norm="layer", epsilon=config.number("layer_norm_eps"),
        activation=config.activation("hidden_act"),
        max_positions=weights.shape_of("position_embedding.weight")[0])
    return made, weights


def _floats(arrays: Mapping[str, np.ndarray | BlockWeight], name: str) -> np.ndarray | None:
    found = arrays.get(name)
    if isinstance(found, BlockWeight):
        raise InvalidModelError(f"the weight {name!r} is quantised in blocks", expected="floats",
                                got=found.format)
    return None if found is None else found.astype(np.float32)


def text_encoder_program(architecture: Architecture, weights: Weights, dtype: str,
                         activations: str) -> IRModule:
    """The module from tokens to states, float32 [batch, seq, hidden size].

    It takes ``ids``, int64 [batch, seq], ``positions``, int64 [seq], and ``lengths``, int64
    [batch]: the tokens of a text, which do not see the padding behind them.
    """
    ids, positions, lengths = (var(name, shape, "int64") for name, shape in (
        ("ids", ("batch", "seq")), ("positions", ("seq",)), ("lengths", ("batch",))))
    products = Products(activations)
    model = LayerWeights(weights, "", dtype, products)
    x = embed(ids, model) + op.take(model["position_embedding.weight"], positions, axis=0)
    x = normalize(x, model, "embedding_norm", architecture)
    visible = op.less(positions, op.reshape(lengths, newshape=(-1, 1, 1, 1)))
    for number in range(len(architecture.layers)):
        layer = LayerWeights(weights, f"layers.{number}.", dtype, products)
        x = _layer(x, layer, architecture, visible)
    main = Function((ids, positions, lengths), op.cast(x, dtype="float32"))
    return ir.infer_type(IRModule.from_expr(main))


def _layer(x: Expr, weights: LayerWeights, architecture: Architecture, visible: Expr) -> Expr:
    q, k, v = (heads_first(split_heads(x, weights, name, architecture.heads,
                                       architecture.head_dim)) for name in "qkv")
    y = op.nn.masked_attention(q, k, v, visible, scale=architecture.layers[0].scale)
    y = dense(merge_heads(y, architecture), weights, "attention_output")
    x = normalize(x + y, weights, "attention_norm", architecture)
    return normalize(x + mlp(x, weights, architecture), weights, "mlp_norm", architecture)
