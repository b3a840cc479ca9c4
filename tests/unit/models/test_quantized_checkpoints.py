"""Folders of Hugging Face with quantised weights, against NumPy's formulas of their methods."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import weft
from tests.unit.generation.text.model_files import llama_weights, write_folder, write_json
from tests.unit.models import numpy_decoder
from weft.models.architecture import BlockWeight, Weights
from weft.models.transformers.folder import architecture_of_folder
from weft.support.errors import InvalidModelError, UnsupportedModelError, WeftError
from weft.support.safetensors_file import write_tensors
from weft.topi.nn.block_family import NF4_LEVELS
from weft.topi.nn.block_formats import block_format
from weft.topi.nn.block_quantized import dequantized

GROUP = 16
Layer = tuple[dict[str, np.ndarray], np.ndarray]  # tensors by the rest of their names, and floats


def codes_of(matrix: np.ndarray, bits: int, dtype: str = "float16"
             ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes [N, K], scales and zero points [N, groups] of 4 or 8 bits with zero points."""
    grouped, top = matrix.reshape(len(matrix), -1, GROUP), (1 << bits) - 1
    low, high = np.minimum(grouped.min(-1), 0), np.maximum(grouped.max(-1), 0)
    scales = ((high - low) / top).astype(dtype)
    zeros = np.clip(np.rint(-low / scales.astype(np.float32)), 1, top).astype(np.uint8)
    codes = np.rint(grouped / scales[..., None].astype(np.float32)) + zeros[..., None]
    return np.clip(codes, 0, top).astype(np.uint8).reshape(matrix.shape), scales, zeros


def floats_of(codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | float) -> np.ndarray:
    grouped = codes.reshape(*scales.shape, -1).astype(np.float32)
    point = zeros[..., None].astype(np.float32) if isinstance(zeros, np.ndarray) else zeros
    return ((grouped - point) * scales[..., None].astype(np.float32)).reshape(codes.shape)


def words(codes: np.ndarray, bits: int, axis: int, order: tuple[int, ...] = ()) -> np.ndarray:
    """Codes in 32-bit words, the first of ``order`` in the lowest bits."""
    each = 32 // bits
    moved = np.moveaxis(codes, axis, -1)
    moved = np.pad(moved, ((0, 0), (0, -moved.shape[-1] % each))).astype(np.uint32)
    apart = moved.reshape(*moved.shape[:-1], -1, each)
    packed = np.zeros(apart.shape[:-1], np.uint32)
    for place, column in enumerate(order or range(each)):
        packed |= apart[..., column] << np.uint32(place * bits)
    return np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32)


def awq(matrix: np.ndarray) -> Layer:
    codes, scales, zeros = codes_of(matrix, 4)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {".qweight": words(codes.T, 4, 1, order), ".qzeros": words(zeros.T, 4, 1, order),
            ".scales": np.ascontiguousarray(scales.T)}, floats_of(codes, scales, zeros)


def gptq(matrix: np.ndarray, bits: int = 4, less: int = 1) -> Layer:
    codes, scales, zeros = codes_of(matrix, bits)
    return {".qweight": words(codes.T, bits, 0), ".qzeros": words(zeros.T - less, bits, 1),
            ".scales": np.ascontiguousarray(scales.T),
            ".g_idx": (np.arange(matrix.shape[1]) // GROUP).astype(np.int32),
            }, floats_of(codes, scales, zeros)


def packed(matrix: np.ndarray, zeros_too: bool = False) -> Layer:
    codes, scales, zeros = codes_of(matrix, 4, "bfloat16")
    found = {".weight_packed": words(codes, 4, 1), ".weight_scale": scales,
             ".weight_shape": np.array(matrix.shape, np.int64)}
    if zeros_too:
        found[".weight_zero_point"] = words(zeros, 4, 0)
    return found, floats_of(codes, scales, zeros if zeros_too else 8.0)


def integers(matrix: np.ndarray) -> Layer:
    scales = (np.abs(matrix).max(1, keepdims=True) / 127).astype(np.float32)
    codes = np.rint(matrix / scales).astype(np.int8)
    return {".weight": codes, ".weight_scale": scales}, codes * scales


def eight_bit_floats(matrix: np.ndarray) -> Layer:
    scale = np.array([np.abs(matrix).max() / 448], np.float32)
    stored = (matrix / scale).astype(ml_dtypes.float8_e4m3fn)
    return {".weight": stored, ".weight_scale": scale,
            ".input_scale": np.ones(1, np.float32)}, stored.astype(np.float32) * scale


def square_blocks(matrix: np.ndarray) -> Layer:
    rows, columns = matrix.shape
    scales = np.random.default_rng(rows).uniform(
        0.01, 0.02, (-(-rows // 32), columns // 32)).astype(np.float32)
    spread = np.repeat(np.repeat(scales, 32, 0)[:rows], 32, 1)
    stored = (matrix / spread).astype(ml_dtypes.float8_e4m3fn)
    return {".weight": stored, ".weight_scale_inv": scales}, stored.astype(np.float32) * spread


def nf4(matrix: np.ndarray, nested: bool = False) -> Layer:
    levels = np.array(NF4_LEVELS, np.float32)
    grouped = matrix.reshape(-1, GROUP)
    absmax = np.abs(grouped).max(1)
    found: dict[str, np.ndarray] = {".weight.quant_map": levels}
    state: dict[str, Any] = {"quant_type": "nf4", "blocksize": GROUP, "shape": matrix.shape}
    if nested:
        table, outer = np.linspace(-1, 1, 256, dtype=np.float32), np.float32(absmax.max())
        offset = float(absmax.mean())
        stored = np.abs(table - ((absmax - offset) / outer)[:, None]).argmin(1).astype(np.uint8)
        absmax = table[stored] * outer + np.float32(offset)
        state |= {"nested_blocksize": 256, "nested_offset": offset}
        found |= {".weight.nested_quant_map": table, ".weight.absmax": stored,
                  ".weight.nested_absmax": np.full(-(-len(stored) // 256), outer)}
    else:
        found[".weight.absmax"] = absmax
    codes = np.abs(grouped[..., None] / absmax[:, None, None] - levels).argmin(-1)
    pairs = codes.reshape(-1, 2)
    found[".weight"] = (pairs[:, :1] << 4 | pairs[:, 1:]).astype(np.uint8)
    found[".weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(
        json.dumps(state).encode(), np.uint8)
    return found, (levels[codes] * absmax[:, None]).reshape(matrix.shape)


def int8_rows(matrix: np.ndarray) -> Layer:
    largest = np.abs(matrix).max(1)
    codes = np.rint(matrix / largest[:, None] * 127).astype(np.int8)
    return {".weight": codes, ".SCB": largest}, codes * (largest / 127)[:, None]


def compressed(kind: str, **weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": kind, "config_groups": {
        "group_0": {"weights": {"num_bits": 4, "type": "int", **weights}}}}


METHODS: dict[str, tuple[dict[str, Any], Callable[[np.ndarray], Layer], str]] = {
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, awq, "int4_g16_z"),
    "gptq": ({"quant_method": "gptq", "bits": 4}, gptq, "int4_g16_z"),
    "gptq_v2": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"},
                lambda m: gptq(m, less=0), "int4_g16_z"),
    "gptq_8": ({"quant_method": "gptq", "bits": 8}, lambda m: gptq(m, 8), "int8_g16_f32_z"),
    "packed": (compressed("pack-quantized"), packed, "int4_g16"),
    "packed_zeros": (compressed("pack-quantized"), lambda m: packed(m, True), "int4_g16_z"),
    "integers": (compressed("int-quantized", num_bits=8), integers, "int8_g"),
    "floats": (compressed("float-quantized", num_bits=8, type="float"), eight_bit_floats,
               "fp8_e4m3_g"),
    "square": ({"quant_method": "fp8", "weight_block_size": [32, 32]}, square_blocks,
               "fp8_e4m3_g32_f32"),
    "nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True}, nf4, "nf4_g16_f32"),
    "nf4_nested": ({"quant_method": "bitsandbytes"}, lambda m: nf4(m, True), "nf4_g16_f32"),
    "int8_rows": ({"quant_method": "bitsandbytes"}, int8_rows, "int8_g"),
}


def checkpoint(folder: Path, name: str,
               change: Callable[[dict[str, np.ndarray]], None] | None = None, **fields: Any
               ) -> dict[str, np.ndarray]:
    """A folder whose linear layers a method has quantised; the floats that they stand for."""
    config, quantize, _ = METHODS[name]
    write_folder(folder, quantization_config={**config, **fields})
    tensors, expected = {}, {}
    for key, array in llama_weights().items():
        base = key.removesuffix(".weight")
        expected[key] = array
        if base.endswith("_proj"):
            parts, expected[key] = quantize(array)
            tensors |= {base + rest: part for rest, part in parts.items()}
        else:
            tensors[key] = array
    if change is not None:
        change(tensors)
    (folder / "model.safetensors.index.json").unlink()
    write_tensors(folder / "model.safetensors", tensors)
    return expected


def as_floats(weights: Weights) -> Weights:
    found = {}
    for name in weights.names():
        blocks = weights.blocks(name)
        found[name] = weights[name] if blocks is None else floats_in(blocks)
    return Weights(found)


def floats_in(blocks: BlockWeight) -> np.ndarray:
    return dequantized(blocks.data, block_format(blocks.format))


@pytest.mark.parametrize("name", METHODS)
def test_weights_stay_in_their_bits(name: str, tmp_path: Path) -> None:
    expected = checkpoint(tmp_path, name)
    _, weights = architecture_of_folder(tmp_path)
    for ours, theirs in (("q", "self_attn.q_proj"), ("v", "self_attn.v_proj"),
                         ("up", "mlp.up_proj"), ("down", "mlp.down_proj")):
        blocks = weights.blocks(f"layers.1.{ours}.weight")
        assert blocks is not None
        assert blocks.format.startswith(METHODS[name][2])
        wanted = expected[f"model.layers.1.{theirs}.weight"]
        # Offsets are rounded to float16 where scales are.
        bound = 1e-2 if blocks.format.endswith("g16_z") else 1e-6
        np.testing.assert_allclose(floats_in(blocks), wanted, atol=bound * np.abs(wanted).max())


def test_a_quantised_model_generates_what_its_floats_say(tmp_path: Path) -> None:
    checkpoint(tmp_path, "packed")
    architecture, weights = architecture_of_folder(tmp_path)
    tokens: list[int] = []
    model = weft.models.load(tmp_path, activations="float32")
    for _ in model.stream("Hi", max_tokens=6, on_token=tokens.append):
        pass
    ids = list(model.tokens_of("Hi"))
    for token in tokens:
        logits = numpy_decoder.logits(architecture, as_floats(weights), np.array(ids))
        assert token == logits[-1].argmax()
        ids.append(token)
    assert len(tokens) == 6


def drop(part: str) -> Callable[[dict[str, np.ndarray]], None]:
    return lambda tensors: [tensors.pop(n) for n in list(tensors) if n.endswith(part)] and None


def put(part: str, value: Callable[[np.ndarray], np.ndarray]
        ) -> Callable[[dict[str, np.ndarray]], None]:
    def change(tensors: dict[str, np.ndarray]) -> None:
        tensors.update({name: value(array) for name, array in tensors.items()
                        if name.endswith(part)})

    return change


@pytest.mark.parametrize(("name", "change", "fields", "error", "what"), [
    ("awq", drop(".scales"), {}, InvalidModelError, "a quantised weight is incomplete"),
    ("awq", put(".scales", lambda a: a * np.float16("nan")), {}, InvalidModelError,
     "a scale of a quantised weight is not finite"),
    ("awq", put(".scales", lambda a: a[:, :8].copy()), {}, InvalidModelError, "does not fit"),
    ("awq", None, {"version": "gemv"}, UnsupportedModelError, "AWQ of the version 'gemv'"),
    ("gptq", put(".g_idx", lambda a: a[::-1].copy()), {}, UnsupportedModelError, "desc_act"),
    ("gptq", None, {"bits": 3}, UnsupportedModelError, "GPTQ with 3 bits"),
    ("gptq", None, {"bits": "four"}, InvalidModelError, "invalid field 'bits'"),
    ("packed", None, {"format": "nvfp4-pack-quantized"}, UnsupportedModelError, "nvfp4"),
    ("packed", None, {"config_groups": []}, InvalidModelError, "config_groups"),
    ("packed", put(".weight_shape", lambda a: a * 2), {}, InvalidModelError, "does not fit"),
    ("nf4", put(".quant_map", lambda a: a * 2), {}, UnsupportedModelError, "a table of other"),
    ("nf4", put("nf4", lambda a: a[:-3].copy()), {}, InvalidModelError, "does not fit"),
    ("awq", None, {"quant_method": "aqlm"}, UnsupportedModelError, "quantised by 'aqlm'"),
    ("awq", None, {"quant_method": ["awq"]}, UnsupportedModelError, "quantised by"),
], ids=lambda v: v if isinstance(v, str) else type(v).__name__)
def test_bad_checkpoints_are_refused(name: str, change: Any, fields: dict[str, Any],
                                     error: type[WeftError], what: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, name, change, **fields)
    with pytest.raises(error, match=what):
        architecture_of_folder(tmp_path)


def test_a_scale_of_zero_makes_zeros(tmp_path: Path) -> None:
    for name, part in (("awq", ".scales"), ("nf4", ".weight.absmax"), ("floats", ".weight_scale")):
        checkpoint(tmp_path, name, put(part, np.zeros_like))
        blocks = architecture_of_folder(tmp_path)[1].blocks("layers.0.up.weight")
        assert blocks is not None
        assert not floats_in(blocks).any()


def test_a_folder_of_another_method_by_mistake(tmp_path: Path) -> None:
    checkpoint(tmp_path, "awq")
    config = json.loads((tmp_path / "config.json").read_text())
    write_json(tmp_path / "config.json", {**config, "quantization_config": ["awq"]})
    with pytest.raises(InvalidModelError, match="invalid field 'quantization_config'"):
        architecture_of_folder(tmp_path)
