"""Weights of a language model in blocks, as they are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.ir import Call, Constant, Expr, IRModule, post_order
from weft.ir.dtype import DType
from weft.models.architecture import Architecture, BlockWeight, Weights
from weft.models.compiled_decoder import BLOCK_SIZE, table_of
from weft.models.decoder_program import CacheShape, decoder_program
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import LayerReport, QuantizationReport
from weft.quantization.schemes import SCHEMES, scheme_named
from weft.quantization.weight_only.calibrate import chunks_of, gram_of, grams_of
from weft.quantization.weight_only.gram import Gram
from weft.quantization.weight_only.layers import Layer, data_of, layers_of
from weft.quantization.weight_only.matrix import WIDER, QuantizedMatrix, Quantizer
from weft.quantization.weight_only.run import KEPT
from weft.support import progress
from weft.support.errors import InvalidInputError, OptionError
from weft.transform.analysis.graph import op_name

# Names of matrices, before ".weight"; the first two are in 8 bits, as a few wrong tokens cost most.
_ENDS = ("embedding", "output")
_MATRICES = (*_ENDS, "q", "k", "v", "attention_output", "gate", "up", "down",
             "cross_q", "cross_k", "cross_v", "cross_output")
_CAPACITY = 2048  # tokens of a calibration text that are read


class QuantizedWeights(Weights):
    """Weights whose matrices are in blocks, and the ``report`` of their quantisation."""

    def __init__(self, arrays: Mapping[str, np.ndarray | BlockWeight], report: QuantizationReport
                 ) -> None:
        super().__init__(arrays)
        self.report = report


def quantize_weights(architecture: Architecture, weights: Weights, scheme: str = "int4",
                     data: Iterable[Sequence[int] | np.ndarray] | None = None, **options: Any
                     ) -> QuantizedWeights:
    """The weights with each matrix in blocks; the other arrays are those given.

    ``scheme`` is one of weights only, ``options`` are fields of ``QuantizationOptions``, and
    ``data`` texts as tokens, which methods with calibration read. The embedding and the matrix of
    the logits have 8 bits. Matrices that are in blocks already stay as they are, and so do the
    experts of mixtures.

    Raises ``OptionError`` for other schemes and options, and ``InvalidInputError`` for tokens out
    of range.
    """
    row, wanted = scheme_named(scheme), QuantizationOptions.make(options)
    settings = dict(row.settings)
    if "method" not in settings:
        raise OptionError(f"the scheme {scheme!r} is not of weights only", expected=", ".join(
            one.name for one in SCHEMES.values() if "method" in one.settings))
    texts = [] if data is None else [_checked(text, architecture) for text in data]
    row.check_data(bool(texts))
    method = settings["with_data"] if texts and settings.get("with_data") else settings["method"]
    return _Conversion(architecture, weights, Quantizer(
        method, wanted.format or settings["format"], wanted), texts).run(scheme)


def _checked(text: Sequence[int] | np.ndarray, architecture: Architecture) -> np.ndarray:
    ids = np.asarray(text, np.int64).reshape(-1)
    ids = ids[:min(_CAPACITY, architecture.max_positions or _CAPACITY)]
    if not ids.size or ids.min() < 0 or ids.max() >= architecture.vocab_size:
        raise InvalidInputError("a calibration text is empty, or has unknown tokens",
                                expected=f"tokens from 0 to {architecture.vocab_size - 1}",
                                got=f"{ids.size} tokens")
    return ids


class _Conversion:
    """Quantises the matrices of one model; arrays that two names share become one."""

    def __init__(self, architecture: Architecture, weights: Weights, quantizer: Quantizer,
                 texts: Sequence[np.ndarray]) -> None:
        self._architecture = architecture
        self._weights = weights
        self._quantizer = quantizer
        self._ends = Quantizer("round", WIDER, quantizer.options)
        self._texts = texts
        self._arrays: dict[str, np.ndarray | BlockWeight] = {
            name: weights.blocks(name) or weights[name] for name in weights.names()}
        self._made: dict[int, BlockWeight] = {}
        self._reports: dict[str, LayerReport] = {}

    def run(self, scheme: str) -> QuantizedWeights:
        names = [name for name, array in self._arrays.items()
                 if isinstance(array, np.ndarray) and _is_matrix(name, array)]
        with progress.task("quantising", len(names)) as task:
            if self._texts:
                self._calibrated(task)
            for name in names:
                if name not in self._reports:
                    self._quantize(name, None, None)
                    task.advance(name)
        reports = [self._reports[name] for name in names]
        return QuantizedWeights(self._arrays, QuantizationReport(scheme, tuple(reports)))

    def _calibrated(self, task: progress.Task) -> None:
        """Quantise the matrices whose data the program shows."""
        module = self._program()
        names = {_address(array): name for name, array in self._arrays.items()
                 if isinstance(array, np.ndarray) and _base(name) not in _ENDS}
        layers = [layer for layer in layers_of(module, tables=False)
                  if _address(layer.weight.data) in names]
        samples = list(self._samples(module))
        for chunk in chunks_of(layers):
            grams = grams_of(module, chunk, samples)
            for readers in _by_data(chunk):
                named = {names[_address(one.weight.data)]: one for one in readers}
                factors = self._fold(module, named, gram_of(readers[0], grams))
                for name, layer in named.items():
                    self._quantize(name, gram_of(layer, grams), factors)
                    task.advance(name)

    def _program(self) -> IRModule:
        table = table_of(max(map(len, self._texts)), 1, BLOCK_SIZE)
        self._table = table
        dtype = self._weights.dtype
        self._caches = CacheShape(table.blocks, table.block_size, table.rows.shape[1], dtype)
        return decoder_program(self._architecture, self._weights, self._caches, dtype)

    def _samples(self, module: IRModule) -> Iterator[Mapping[str, np.ndarray]]:
        caches = {param.name: np.zeros(self._caches.of(self._architecture),
                                       DType.of(self._caches.dtype).numpy)
                  for param in module["main"].params if param.name[:1] in "kv"
                  and param.name[1:].isdigit()}
        self._table.reserve(0, max(map(len, self._texts)))
        for ids in self._texts:
            yield {"ids": ids[None], "positions": np.arange(len(ids))[None],
                   "start": np.zeros(1, np.int64), "lengths": np.array([len(ids)]),
                   "rows": np.arange(len(ids)), "block_table": self._table.rows[:1], **caches}

    def _fold(self, module: IRModule, named: Mapping[str, Layer], gram: Gram | None
              ) -> np.ndarray | None:
        """AWQ's factors of matrices that read a norm alone; its weights are divided by them."""
        data = data_of(next(iter(named.values())).calls[0])
        norms = self._norms_of(data)
        calls = {call for layer in named.values() for call in layer.calls}
        if not norms or any(self._quantizer.options.keeps(_layer(name)) for name in named) \
                or not _readers(module, data) <= calls:
            return None
        factors = self._quantizer.factors([layer.matrix for layer in named.values()], gram)
        if factors is not None:
            for name in norms:
                array = self._weights[name]
                self._arrays[name] = (array.astype(np.float32) / factors).astype(array.dtype)
        return factors

    def _norms_of(self, data: Expr) -> list[str]:
        """The names of the scale and shift of a norm; none for other expressions."""
        if op_name(data) not in ("nn.layer_norm", "nn.rms_norm") or not isinstance(data, Call):
            return []
        own = {_address(arg.data) for arg in data.args if isinstance(arg, Constant)}
        return [name for name, array in self._arrays.items()
                if isinstance(array, np.ndarray) and _address(array) in own]

    def _quantize(self, name: str, gram: Gram | None, factors: np.ndarray | None) -> None:
        array = self._weights[name]
        quantizer = self._ends if _base(name) in _ENDS else self._quantizer
        made, reason = self._blocks(name, array, quantizer, gram, factors)
        if made is not None:
            found = self._made.get(id(array))
            if found is None:
                found = self._made[id(array)] = BlockWeight(made.blocks, made.format)
            self._arrays[name] = found
        after = array.dtype.name if made is None else made.format
        self._reports[name] = LayerReport(
            layer=_layer(name), operator="dense", shape=array.shape, before=array.dtype.name,
            after=after, error=None if made is None else made.error, reason=reason,
            bytes_before=array.nbytes,
            bytes_after=array.nbytes if made is None else made.blocks.nbytes)

    def _blocks(self, name: str, array: np.ndarray, quantizer: Quantizer, gram: Gram | None,
                factors: np.ndarray | None) -> tuple[QuantizedMatrix | None, str]:
        if quantizer.options.keeps(_layer(name)):
            return None, KEPT
        made, reason = quantizer.quantized(np.asarray(array, np.float32), gram, factors)
        if made is None and factors is not None:  # it stays, over data that is divided
            self._arrays[name] = (array.astype(np.float32) * factors).astype(array.dtype)
        return made, reason


def _base(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def _layer(name: str) -> str:
    return name.removesuffix(".weight")


def _is_matrix(name: str, array: np.ndarray) -> bool:
    return name.endswith(".weight") and _base(name) in _MATRICES and array.ndim == 2


def _address(array: np.ndarray) -> tuple[int, tuple[int, ...]]:
    """Equal for arrays that are one in memory."""
    return int(array.__array_interface__["data"][0]), array.shape


def _by_data(layers: Sequence[Layer]) -> Iterable[list[Layer]]:
    found: dict[Expr, list[Layer]] = {}
    for layer in layers:
        found.setdefault(data_of(layer.calls[0]), []).append(layer)
    return found.values()


def _readers(module: IRModule, data: Expr) -> set[Expr]:
    return {node for node in post_order(module["main"])
            if isinstance(node, Call) and data in node.args}
