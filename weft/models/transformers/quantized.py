"""Checkpoints with quantised weights: their codes, scales and zero points as weights in blocks.

The field ``quantization_config`` of ``config.json`` names the method. Weights are read as they are:
nothing is rounded again, and no float array of them is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from weft.models.architecture import BlockWeight
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidInputError, InvalidModelError, UnsupportedModelError
from weft.topi.nn.block_codes import blocks_of_codes, group_size
from weft.topi.nn.block_encode import pack_blocks
from weft.topi.nn.block_family import NF4_LEVELS

Tensor = Callable[[], np.ndarray]
Stored = Callable[[], "np.ndarray | BlockWeight"]
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)  # the column of each of the 8 codes of a word


@dataclass(frozen=True)
class Module:
    """The tensors of one layer by the rest of their names, and the fields of its method."""

    name: str
    tensors: Mapping[str, Tensor]
    fields: Mapping[str, Any]

    def __contains__(self, part: str) -> bool:
        return part in self.tensors

    def array(self, part: str, ndim: int | None = None) -> np.ndarray:
        if part not in self.tensors:
            raise InvalidModelError("a quantised weight is incomplete", where=self.name,
                                    expected=f"the tensor {self.name}{part}", got="no such tensor")
        found = self.tensors[part]()
        if ndim is not None and found.ndim != ndim:
            raise self.misfit(part, f"{ndim} axes", found.shape)
        return found

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidModelError(f"invalid field {name!r} of quantization_config",
                                    where=self.name, expected="an integer", got=repr(value)[:80])
        return value

    def misfit(self, part: str, expected: str, got: object) -> InvalidModelError:
        return InvalidModelError(f"the tensor {self.name}{part} does not fit", where=self.name,
                                 expected=expected, got=got)

    def refuse(self, what: str, **fields: Any) -> UnsupportedModelError:
        return UnsupportedModelError(f"{what} of a quantised checkpoint is not supported",
                                     where=self.name, **fields)

    def blocks(self, codes: np.ndarray, scales: np.ndarray, zeros: np.ndarray | None, bits: int
               ) -> BlockWeight:
        """``scales * (codes - zeros)`` in blocks: codes [N, K] from 0, the others [N, groups]."""
        if codes.ndim != 2 or scales.ndim != 2 or scales.shape[0] != codes.shape[0] \
                or (zeros is not None and zeros.shape != scales.shape) \
                or not scales.shape[1] or codes.shape[1] % scales.shape[1]:
            raise self.misfit("", f"scales and zero points for {codes.shape}",
                              (scales.shape, None if zeros is None else zeros.shape))
        try:
            made = blocks_of_codes(codes, scales, zeros, bits=bits)
        except InvalidInputError as error:
            raise InvalidModelError(error.what, where=f"{self.name}, {error.where}",
                                    expected=error.expected, got=error.got) from None
        if made is None:
            raise self.refuse(f"a group of {codes.shape[1] // scales.shape[1]} elements",
                              expected="a multiple of 16 that divides the rows")
        return BlockWeight(made.data, made.format)

    def raw(self, codes: np.ndarray, scales: np.ndarray, kind: str, zero: int) -> BlockWeight:
        """``levels[codes] * scales`` in blocks of float32 scales; ``zero`` is the code of 0."""
        rows, elements = codes.shape
        shared = elements // max(scales.shape[1], 1)
        size = group_size(elements, max(shared, 1))
        if size is None or scales.shape != (rows, elements // shared):
            raise self.refuse(f"scales {scales.shape} for a matrix {codes.shape}",
                              expected="groups of a multiple of 16 that divides the rows")
        scales = scales.astype(np.float32)
        none = scales == 0
        if none.any():
            grouped = codes.reshape(rows, -1, shared)
            codes = np.where(none[..., None], np.uint8(zero), grouped).reshape(codes.shape)
            scales = np.where(none, np.float32(1), scales)
        name = f"{kind}_g{size}_f32"
        try:
            return BlockWeight(pack_blocks(codes, name, np.repeat(scales, shared // size, 1)), name)
        except InvalidInputError as error:
            raise InvalidModelError(error.what, where=f"{self.name}, {error.where}",
                                    expected=error.expected, got=error.got) from None


def unpacked(words: np.ndarray, bits: int, axis: int) -> np.ndarray:
    """The codes of 32-bit words along ``axis``, the first in the lowest bits, uint8."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    wide = np.moveaxis(np.ascontiguousarray(words).view(np.uint32), axis, -1)[..., None]
    codes = (wide >> shifts & np.uint32((1 << bits) - 1)).astype(np.uint8)
    return np.moveaxis(codes.reshape(*codes.shape[:-2], -1), -1, axis)


def awq(module: Module) -> BlockWeight:
    """AutoAWQ's "gemm": qweight [K, N / 8], qzeros [groups, N / 8], scales [groups, N]."""
    version = str(module.fields.get("version", "gemm")).lower()
    if version != "gemm" or module.integer("bits", 4) != 4:
        raise module.refuse(f"AWQ of the version {version!r} and {module.fields.get('bits')} bits",
                            expected="version gemm, 4 bits")
    order = np.argsort(_AWQ_ORDER)

    def columns(part: str) -> np.ndarray:
        codes = unpacked(module.array(part, 2), 4, 1)
        return codes.reshape(len(codes), -1, 8)[..., order].reshape(codes.shape).T

    zeros = columns(".qzeros") if ".qzeros" in module else None
    return module.blocks(columns(".qweight"), module.array(".scales", 2).T, zeros, 4)


def gptq(module: Module) -> BlockWeight:
    """AutoGPTQ: qweight [K * bits / 32, N], qzeros [groups, N * bits / 32], scales [groups, N]."""
    bits = module.integer("bits", 4)
    if bits not in (2, 4, 8):
        raise module.refuse(f"GPTQ with {bits} bits", expected="2, 4 or 8 bits")
    codes, scales = unpacked(module.array(".qweight", 2), bits, 0).T, module.array(".scales", 2).T
    groups = scales.shape[1]
    if ".g_idx" in module:
        _check_order(module, ".g_idx", codes.shape[1], groups)
    zeros = unpacked(module.array(".qzeros", 2), bits, 1).T.astype(np.float32)
    # The first version of the format stores the zero point less one.
    zeros += 0 if module.fields.get("checkpoint_format") == "gptq_v2" else 1
    return module.blocks(codes, scales, zeros, bits)


def _check_order(module: Module, part: str, elements: int, groups: int) -> None:
    """The groups of a row are neighbours; act-order would permute the data of every layer."""
    index = module.array(part, 1)
    if len(index) != elements:
        raise module.misfit(part, f"{elements} indices", index.shape)
    if (index < 0).all():
        return  # compressed-tensors: none
    if not np.array_equal(index, np.arange(elements) // max(elements // max(groups, 1), 1)):
        raise module.refuse("the order of columns by activation (desc_act, actorder)",
                            help="quantise with desc_act=False, or use a GGUF file of the model")


def packed_integers(module: Module) -> BlockWeight:
    """compressed-tensors' pack-quantized: weight_packed [N, K * bits / 32], codes from 0."""
    bits = module.integer("num_bits", 4)
    if bits not in (2, 4, 8):
        raise module.refuse(f"pack-quantized with {bits} bits", expected="2, 4 or 8 bits")
    codes = unpacked(module.array(".weight_packed", 2), bits, 1)
    rows, elements = (int(size) for size in module.array(".weight_shape").reshape(-1)[:2])
    if codes.shape[0] != rows or not 0 <= codes.shape[1] - elements < 32 // bits:
        raise module.misfit(".weight_packed", f"words for {rows} x {elements} codes", codes.shape)
    codes = codes[:, :elements]
    scales = _by_row(module, ".weight_scale", rows)
    if ".weight_g_idx" in module:
        _check_order(module, ".weight_g_idx", elements, scales.shape[1])
    zeros = None
    if ".weight_zero_point" in module:
        zeros = module.array(".weight_zero_point", 2)
        zeros = (unpacked(zeros, bits, 0)[:rows] if zeros.dtype == np.int32
                 else zeros.astype(np.float32) + (1 << bits - 1))
    return module.blocks(codes, scales, zeros, bits)


def plain_integers(module: Module) -> BlockWeight:
    """compressed-tensors' int-quantized: weight int8 [N, K], and a scale per row or group."""
    weight = module.array(".weight", 2)
    if weight.dtype != np.int8:
        return floats(module)
    scales = _by_row(module, ".weight_scale", len(weight))
    zeros = (_by_row(module, ".weight_zero_point", len(weight)).astype(np.float32) + 128
             if ".weight_zero_point" in module else None)
    return module.blocks((weight.view(np.uint8) + np.uint8(128)), scales, zeros, 8)


def floats(module: Module) -> BlockWeight:
    """Floats of 8 bits [N, K], and scales of the tensor, of rows, or of square blocks."""
    weight = module.array(".weight", 2)
    kind = {"float8_e4m3fn": "fp8_e4m3", "float8_e5m2": "fp8_e5m2"}.get(weight.dtype.name)
    if kind is None:
        raise module.refuse(f"a weight of {weight.dtype}", expected="int8, float8_e4m3fn")
    part = ".weight_scale_inv" if ".weight_scale_inv" in module else ".weight_scale"
    scales = _by_row(module, part, len(weight))
    codes = weight.view(np.uint8)
    if np.isnan(weight.astype(np.float32)).any():
        raise module.misfit(".weight", "numbers", "NaN")
    return module.raw(codes, scales, kind, 0)


def _by_row(module: Module, part: str, rows: int) -> np.ndarray:
    """Scales or zero points [rows, groups]: of the tensor, of rows or groups, of square blocks."""
    found = module.array(part)
    if found.size == 1:
        return np.broadcast_to(found.reshape(1, 1), (rows, 1))
    if found.ndim == 1:
        found = found[:, None]
    if found.ndim != 2 or not len(found) or len(found) > rows:
        raise module.misfit(part, f"a number for each of {rows} rows", found.shape)
    sides = module.fields.get("weight_block_size")
    share = sides[0] if isinstance(sides, list) and sides and isinstance(sides[0], int) else 1
    if len(found) == rows:
        return found
    if share < 1 or -(-rows // share) != len(found):
        raise module.misfit(part, f"a number for each of {rows} rows, or {share} of them",
                            found.shape)
    return np.repeat(found, share, axis=0)[:rows]


def bitsandbytes(module: Module) -> BlockWeight:
    """NF4 in blocks of a row (two codes a byte, the first in the high half), or int8 by rows."""
    if ".SCB" in module:
        weight = module.array(".weight", 2)
        scales = module.array(".SCB").reshape(-1, 1).astype(np.float32) / 127
        return module.blocks(weight.view(np.uint8) + np.uint8(128), scales, None, 8)
    state_part = next((part for part in module.tensors if ".quant_state." in part), None)
    if state_part is None or not state_part.endswith("nf4"):
        raise module.refuse(f"the type {state_part}", expected="nf4")
    state = _state(module, state_part)
    levels = module.array(".weight.quant_map").reshape(-1).astype(np.float32)
    if levels.shape != (16,) or not np.allclose(levels, NF4_LEVELS, atol=1e-5):
        raise module.refuse("a table of other levels than those of NF4", got=levels[:4])
    shape, size = state["shape"], state["blocksize"]
    packed = module.array(".weight").reshape(-1)
    if packed.dtype != np.uint8 or 2 * packed.size != shape[0] * shape[1] or shape[1] % size:
        raise module.refuse(f"a matrix {shape} in blocks of {size}", got=f"{packed.size} bytes")
    codes = np.stack([packed >> 4, packed & 15], axis=-1).reshape(shape)
    return module.raw(codes, _absmax(module, state).reshape(shape[0], -1), "nf4", 7)


def _state(module: Module, part: str) -> dict[str, Any]:
    try:
        state = json.loads(bytes(module.array(part)))
        shape = [int(size) for size in state["shape"]]
        size = int(state["blocksize"])
        if len(shape) != 2 or size < 1:
            raise ValueError(f"shape {shape}, blocksize {size}")
    except (ValueError, KeyError, TypeError) as error:
        raise module.misfit(part, "an object with shape and blocksize", error) from None
    return {**state, "shape": shape, "blocksize": size}


def _absmax(module: Module, state: Mapping[str, Any]) -> np.ndarray:
    """The scales of blocks, which may be quantised themselves (double quantisation)."""
    found = module.array(".weight.absmax").reshape(-1)
    if ".weight.nested_absmax" in module:
        levels = module.array(".weight.nested_quant_map").reshape(-1).astype(np.float32)
        outer = module.array(".weight.nested_absmax").reshape(-1).astype(np.float32)
        size = int(state.get("nested_blocksize", 256))
        if found.dtype != np.uint8 or len(levels) != 256 or len(outer) * size < len(found):
            raise module.misfit(".weight.absmax", "bytes, 256 levels and scales of blocks",
                                found.shape)
        scaled = levels[found] * np.repeat(outer, size)[:len(found)]
        found = scaled + np.float32(state.get("nested_offset", 0.0))
    rows, columns = state["shape"]
    if len(found) * state["blocksize"] != rows * columns:
        raise module.misfit(".weight.absmax", f"{rows * columns // state['blocksize']} scales",
                            found.shape)
    return found.astype(np.float32)


@dataclass(frozen=True)
class Method:
    """How a method stores a layer: by the tensor that every such layer has."""

    key: str
    read: Callable[[Module], BlockWeight]


METHODS: dict[str, tuple[Method, ...]] = {
    "awq": (Method(".qweight", awq),),
    "gptq": (Method(".qweight", gptq),),
    "compressed-tensors": (Method(".weight_packed", packed_integers),
                           Method(".weight_scale", plain_integers)),
    "fp8": (Method(".weight_scale_inv", floats), Method(".weight_scale", floats)),
    "bitsandbytes": (Method(".weight.absmax", bitsandbytes), Method(".SCB", bitsandbytes)),
}
_FORMATS = ("pack-quantized", "int-quantized", "naive-quantized", "float-quantized", "dense")


def quantized_tensors(tensors: Mapping[str, Tensor], config: object, where: object
                      ) -> dict[str, Stored]:
    """The tensors of a checkpoint, with ``X.weight`` in blocks for each quantised layer X."""
    if not isinstance(config, Mapping):
        raise InvalidModelError("invalid field 'quantization_config'", where=where,
                                expected="an object", got=type(config).__name__)
    kind = config.get("quant_method")
    if not isinstance(kind, str) or kind not in METHODS:
        raise UnsupportedModelError(
            f"a checkpoint quantised by {kind!r} is not supported", where=where,
            expected=", ".join(METHODS), help="GGUF files hold quantised weights that weft reads")
    fields = dict(config) if kind != "compressed-tensors" else _compressed(config, where)
    found: dict[str, Stored] = dict(tensors)
    for method in METHODS[kind]:
        for name in [name for name in tensors if name.endswith(method.key)]:
            base = name.removesuffix(method.key)
            if f"{base}.weight" in found and name not in found:
                continue  # read by an earlier method
            parts = dict(_parts(tensors, base))
            for rest in parts:
                if rest != ".bias":
                    found.pop(base + rest, None)
            found[f"{base}.weight"] = partial(method.read, Module(base, parts, fields))
    return found


def _parts(tensors: Mapping[str, Tensor], base: str) -> list[tuple[str, Tensor]]:
    """The tensors of a layer by the rest of their names."""
    names = (".qweight", ".qzeros", ".scales", ".g_idx", ".bias", ".weight", ".weight_packed",
             ".weight_shape", ".weight_scale", ".weight_zero_point", ".weight_g_idx",
             ".weight_scale_inv", ".input_scale", ".input_zero_point", ".SCB", ".weight_format",
             ".weight.absmax", ".weight.quant_map", ".weight.nested_absmax",
             ".weight.nested_quant_map", ".weight.quant_state.bitsandbytes__nf4",
             ".weight.quant_state.bitsandbytes__fp4")
    return [(rest, tensors[base + rest]) for rest in names if base + rest in tensors]


def _compressed(config: Mapping[str, Any], where: object) -> dict[str, Any]:
    """The fields of the weights of compressed-tensors, which all groups of layers must share."""
    groups = config.get("config_groups")
    given = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [dict(group["weights"]) for group in given
               if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)]
    if not weights or len(weights) < len(given):
        raise InvalidModelError("invalid field 'config_groups' of quantization_config", where=where,
                                expected="groups with an object 'weights'")
    formats = {str(group.get("format") or config.get("format")) for group in given}
    unknown = sorted(formats - set(_FORMATS))
    if unknown:
        raise UnsupportedModelError(
            f"compressed-tensors of the format {', '.join(unknown)} are not supported",
            where=where, expected=", ".join(_FORMATS))
    if len({(w.get("num_bits"), w.get("type")) for w in weights}) > 1:
        raise UnsupportedModelError("compressed-tensors with several widths of weights are not "
                                    "supported", where=where, expected="one width")
    return weights[0]
