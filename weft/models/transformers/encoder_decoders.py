"""T5 (relative positions, tokens as source) and Whisper (a spectrogram as source)."""

from __future__ import annotations

import math

import numpy as np

from weft.models.architecture import (
    Architecture,
    Encoder,
    EncoderDecoderArchitecture,
    Layer,
    RelativePositions,
)
from weft.models.transformers.configuration import activation_of
from weft.models.transformers.source import Source
from weft.support.errors import UnsupportedModelError


def t5(source: Source) -> EncoderDecoderArchitecture:
    """T5, also of version 1.1 (gated MLP); its scores are not scaled, its norm is RMS norm."""
    config = source.config
    source.take("shared", "embedding")
    source.arrays["encoder.embedding.weight"] = source.arrays["embedding.weight"]
    source.take_output("lm_head", tied=bool(config.tie_word_embeddings))
    for stack, ours, layers in (("encoder", "encoder.", config.num_layers),
                                ("decoder", "", config.num_decoder_layers)):
        source.take(f"{stack}.final_layer_norm", f"{ours}final_norm")
        source.take(f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias",
                    f"{ours}relative")
        for number in range(layers):
            _take_t5_block(source, f"{stack}.block.{number}.layer", f"{ours}layers.{number}",
                           crossed=stack == "decoder")
    if config.scale_decoder_outputs:
        scale = np.float32(config.d_model ** -0.5)
        source.arrays["final_norm.weight"] = source.arrays["final_norm.weight"] * scale

    def stack_of(layers: int) -> Architecture:
        return Architecture(
            vocab_size=config.vocab_size, hidden_size=config.d_model, heads=config.num_heads,
            kv_heads=config.num_heads, head_dim=config.d_kv, layers=(Layer(scale=1.0),) * layers,
            norm="rms", epsilon=config.layer_norm_epsilon,
            activation=activation_of(source.kind, config.dense_act_fn),
            relative=RelativePositions(config.relative_attention_num_buckets,
                                       config.relative_attention_max_distance))

    return EncoderDecoderArchitecture(
        encoder=Encoder(blocks=stack_of(config.num_layers)),
        decoder=stack_of(config.num_decoder_layers), start_token=_start_token(source))


def _take_t5_block(source: Source, theirs: str, ours: str, *, crossed: bool) -> None:
    mlp = 2 if crossed else 1
    parts = [("0.SelfAttention", "", "attention_output"), ("0.layer_norm", "attention_norm", ""),
             (f"{mlp}.layer_norm", "mlp_norm", "")]
    if crossed:
        parts += [("1.EncDecAttention", "cross_", "cross_output"),
                  ("1.layer_norm", "cross_norm", "")]
    for name, new, output in parts:
        if not output:
            source.take(f"{theirs}.{name}", f"{ours}.{new}")
            continue
        for letter in "qkv":
            source.take(f"{theirs}.{name}.{letter}", f"{ours}.{new}{letter}")
        source.take(f"{theirs}.{name}.o", f"{ours}.{output}")
    # "wi" alone, or "wi_0" with the activation and "wi_1" in a gated MLP.
    for name, new in (("wi", "up"), ("wi_0", "gate"), ("wi_1", "up"), ("wo", "down")):
        source.take(f"{theirs}.{mlp}.DenseReluDense.{name}", f"{ours}.{new}")


def whisper(source: Source) -> EncoderDecoderArchitecture:
    """Whisper: convolutions over a log-mel spectrogram, layer norm, learned positions."""
    config = source.config
    for name, new in (("conv1", "conv1"), ("conv2", "conv2"), ("layer_norm", "final_norm"),
                      ("embed_positions", "position_embedding")):
        source.take(f"model.encoder.{name}", f"encoder.{new}")
    for name, new in (("embed_tokens", "embedding"), ("embed_positions", "position_embedding"),
                      ("layer_norm", "final_norm")):
        source.take(f"model.decoder.{name}", new)
    source.take_output("proj_out", tied=bool(config.tie_word_embeddings))
    for number in range(config.encoder_layers):
        _take_whisper_layer(source, f"model.encoder.layers.{number}", f"encoder.layers.{number}")
    for number in range(config.decoder_layers):
        _take_whisper_layer(source, f"model.decoder.layers.{number}", f"layers.{number}")

    def stack_of(heads: int, layers: int, most: int, scale: float = 1.0) -> Architecture:
        head_dim = config.d_model // heads
        return Architecture(
            vocab_size=config.vocab_size, hidden_size=config.d_model, heads=heads, kv_heads=heads,
            head_dim=head_dim, layers=(Layer(scale=head_dim ** -0.5),) * layers, norm="layer",
            epsilon=1e-5, activation=activation_of(source.kind, config.activation_function),
            embedding_scale=scale, max_positions=most)

    encoder = stack_of(config.encoder_attention_heads, config.encoder_layers,
                       config.max_source_positions)
    decoder = stack_of(config.decoder_attention_heads, config.decoder_layers,
                       config.max_target_positions,
                       math.sqrt(config.d_model) if config.scale_embedding else 1.0)
    return EncoderDecoderArchitecture(
        encoder=Encoder(blocks=encoder, bins=config.num_mel_bins,
                        frames=2 * config.max_source_positions),
        decoder=decoder, start_token=_start_token(source))


def _take_whisper_layer(source: Source, theirs: str, ours: str) -> None:
    for attention, new, output in (("self_attn", "", "attention_output"),
                                   ("encoder_attn", "cross_", "cross_output")):
        for letter in "qkv":
            source.take(f"{theirs}.{attention}.{letter}_proj", f"{ours}.{new}{letter}")
        source.take(f"{theirs}.{attention}.out_proj", f"{ours}.{output}")
    for name, new in (("self_attn_layer_norm", "attention_norm"), ("final_layer_norm", "mlp_norm"),
                      ("encoder_attn_layer_norm", "cross_norm"), ("fc1", "up"), ("fc2", "down")):
        source.take(f"{theirs}.{name}", f"{ours}.{new}")


def _start_token(source: Source) -> int:
    token = getattr(source.config, "decoder_start_token_id", None)
    if token is None:
        raise UnsupportedModelError("a configuration without decoder_start_token_id is not "
                                    "supported", where=source.kind,
                                    expected="the token that begins every output")
    return int(token)
