"""Writes small GGUF files: a Llama whose matrices are random blocks, and a tokenizer of bytes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import pre_tokenizers

from tests.unit.generation.text.model_files import TEMPLATE
from weft.op.nn.block_quantized import random_blocks
from weft.topi.nn.block_encode import quantize_blocks
from weft.topi.nn.block_formats import FORMATS

WIDTH, HEADS, INNER, LAYERS, VOCABULARY = 256, 8, 256, 1, 260
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "q2_k": 10,
         "q3_k": 11, "q4_k": 12, "q5_k": 13, "q6_k": 14, "iq4_nl": 20}
_CODES = {bool: (7, "?"), int: (4, "I"), float: (6, "f")}


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, list):
        if type(value[0]) is int:  # with a sign, as llama.cpp expects the types of tokens
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
        entries = b"".join(_value(entry)[4:] for entry in value)
        return struct.pack("<I", 9) + _value(value[0])[:4] + struct.pack("<Q", len(value)) + entries
    code, letter = _CODES[type(value)]
    return struct.pack(f"<I{letter}", code, value)


def metadata(**changes: Any) -> dict[str, Any]:
    tokens = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "<s>", "</s>", "ab", "<y>"]
    return {
        "general.architecture": "llama", "llama.block_count": LAYERS, "llama.context_length": 64,
        "llama.embedding_length": WIDTH, "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": HEADS // 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": ["a b"],
        "tokenizer.ggml.token_type": [1] * 256 + [3, 3, 1, 4],
        "tokenizer.ggml.bos_token_id": 256, "tokenizer.ggml.eos_token_id": 257,
        "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": TEMPLATE, **changes}


def tensors(kind: str) -> dict[str, tuple[str, np.ndarray]]:
    """Name -> type and data; matrices have elements of about 1 / sqrt(K)."""
    found: dict[str, tuple[str, np.ndarray]] = {}
    rng = np.random.default_rng(0)

    def matrix(name: str, rows: int, columns: int) -> None:
        form = FORMATS[kind]
        if kind in ("q4_1", "q5_1"):  # random minima would give elements far from 0
            data = quantize_blocks(0.15 * rng.normal(size=(rows, columns)), kind)
        else:
            data = random_blocks(form, rows, columns // form.elements, seed=len(found),
                                 deviation=0.15)
        found[f"{name}.weight"] = kind, data

    def norm(name: str) -> None:
        found[f"{name}.weight"] = "f32", (1 + rng.normal(size=WIDTH) / 8).astype(np.float32)

    matrix("token_embd", VOCABULARY, WIDTH)
    norm("output_norm")
    for number in range(LAYERS):
        for name, rows, columns in (
                ("attn_q", WIDTH, WIDTH), ("attn_k", WIDTH // 2, WIDTH),
                ("attn_v", WIDTH // 2, WIDTH), ("attn_output", WIDTH, WIDTH),
                ("ffn_gate", INNER, WIDTH), ("ffn_up", INNER, WIDTH), ("ffn_down", WIDTH, INNER)):
            matrix(f"blk.{number}.{name}", rows, columns)
        norm(f"blk.{number}.attn_norm")
        norm(f"blk.{number}.ffn_norm")
    return found


def write_gguf(path: Path, kind: str = "q4_0", version: int = 3, **changes: Any) -> Path:
    """A file with matrices of the format ``kind``, with entries of the metadata changed."""
    return write_contents(path, metadata(**changes), tensors(kind), version)


def write_contents(path: Path, fields: dict[str, Any],
                   arrays: dict[str, tuple[str, np.ndarray]], version: int = 3) -> Path:
    """A file with these metadata, and tensors of the types ``TYPES``."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(arrays), len(fields))
    head += b"".join(_string(key) + _value(value) for key, value in fields.items())
    body = b""
    for name, (stored, data) in arrays.items():
        shape = list(data.shape)
        if stored in FORMATS:
            shape[-1] = shape[-1] // FORMATS[stored].nbytes * FORMATS[stored].elements
        head += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1],
                                            TYPES[stored], len(body))
        body += data.tobytes()
        body += bytes(-len(body) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path
