"""Weights of a module by name: read, set, saved, and changed by low-rank adapters."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.runtime.ndarray import from_dlpack
from weft.runtime.programs_by_size import KeptPrograms
from weft.support.errors import ArtifactError, InvalidInputError
from weft.support.fork_locks import renew_in_child
from weft.support.suggestion import did_you_mean

if TYPE_CHECKING:
    from weft.runtime.executable import Executable

# Arrays by name, or the path of a safetensors file.
Tensors: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str]"

_ADAPTER = re.compile(r"(?:base_model\.model\.)?(.+)\.(?:lora_([AB])(?:\.\w+)?\.weight|alpha)")


class _Turn:
    """Lets one change happen at a time: each starts from the weights of the last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        renew_in_child(self, "lock")


_turn = _Turn()


class WithWeights:
    """The part of an ``Executable`` that knows weights by the names of its model.

    Constants of a program are the weights after folding, another layout and packing, so the model
    is optimised again with the new values; kernels do not depend on values, and are used again.
    ``rebuild`` compiles the portable form of a module that was loaded from an artifact.
    """

    recompiler: Any
    rebuild: Callable[[], Executable] | None = None

    def weights(self) -> dict[str, np.ndarray]:
        """The weights by name, as read-only arrays that tell dtype and shape.

        Shapes, positions and other numbers that the program was made for are not weights.
        Raises ``ArtifactError`` for an artifact without a portable form, or without a compiler.
        """
        found: dict[str, np.ndarray] = self._origin().weights()
        return found

    def set_weights(self, weights: Tensors) -> None:
        """Use other values for some weights from the next call on, without compiling kernels.

        ``weights`` are arrays by name, or the path of a safetensors file or of parameters of TVM.
        They are copied; dtypes and shapes must equal those of ``weights()``. Calls that have
        begun, and ``BoundCall``, end with the weights that they began with; states keep theirs.
        Where values have decided the program (zeros or equal weights were folded), another one is
        compiled, and ``mod.explain()`` says so. Raises ``InvalidInputError`` for an unknown name
        and for arrays that do not fit; the module is then as before.
        """
        with _turn.lock:
            self._set(tensors_of(weights))

    def save_weights(self, path: str | os.PathLike[str]) -> None:
        """Write the weights as a safetensors file, which ``set_weights`` reads."""
        from weft.support.safetensors_file import write_tensors  # ml_dtypes: not for every module

        write_tensors(Path(path), self.weights())

    def apply_lora(self, adapter: Tensors, scale: float = 1.0) -> None:
        """Add a low-rank adapter to the weights: ``W + scale * alpha / r * B @ A``.

        ``adapter`` are pairs ``NAME.lora_A.weight`` and ``NAME.lora_B.weight`` as peft names them,
        with ``NAME.alpha`` or ``alpha`` (else ``r``); or the path of a safetensors file, or of a
        folder as peft writes it, whose ``adapter_config.json`` gives alpha. ``NAME.weight`` is
        changed, so ``set_weights`` with the values before takes the adapter away. Raises
        ``InvalidInputError`` for an adapter that does not fit.
        """
        with _turn.lock:
            known = self._origin().weights()
            self._set(changed_by_adapter(known, *adapter_of(adapter), scale))

    def _origin(self) -> Any:
        """The compiler of the model, which knows its weights."""
        if hasattr(self.recompiler, "reweighted"):
            return self.recompiler
        if self.rebuild is None:
            raise ArtifactError(
                "an artifact does not contain weights by name", got=self,
                help="export it with its portable form, and load it where weft's compiler is "
                     "installed")
        made = self.rebuild()
        self._continue_as(made)
        return made.recompiler

    def _set(self, given: Mapping[str, Any]) -> None:
        origin = self._origin()
        known = origin.weights()
        values = {name: _fitting(name, value, known) for name, value in given.items()}
        if values:
            self._continue_as(origin.reweighted(self, values))

    def _continue_as(self: Any, made: Any) -> None:
        """Run later calls by the program of ``made``, in whose place nothing else runs it."""
        frequent = self._frequent
        if frequent is not None:
            frequent.close()
        self.wait_until_optimized()  # whose code has the weights of before
        with self._change:
            if made.launcher is not None and self.launcher is not None:
                made.launcher.take_over(self.launcher)
            self.manifest, self.launcher = made.manifest, made.launcher
            self.recompiler, self.reason = made.recompiler, made.reason
            self._around, self._launches = made._around, made._launches  # noqa: SLF001
            self._programs, self._general = KeptPrograms(), None
            if self._launches is not None or made.launcher is None:
                self._fixed = None
            if self._launches is not None:
                self._launches.frequent = None if frequent is None else frequent.renewed(self)
            self._bind_fixed()


def tensors_of(source: Tensors) -> Mapping[str, Any]:
    """Arrays by name; those of a file are read when they are used."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, (str, os.PathLike)):
        raise InvalidInputError("not weights", got=type(source).__name__,
                                expected="arrays by name, or the path of a safetensors file")
    from weft.support.safetensors_file import map_tensors
    from weft.support.tvm_params_file import is_tvm_params, read_tvm_params

    path = Path(source)
    if is_tvm_params(path):
        return read_tvm_params(path)
    return {name: read() for name, read in map_tensors(path).items()}


def _fitting(name: str, value: Any, known: Mapping[str, np.ndarray]) -> np.ndarray:
    """A copy of ``value``, which fits the weight of that name."""
    before = known.get(name)
    if before is None:
        raise InvalidInputError(
            f"the model has no weight {name!r}", expected="a name that mod.weights() lists",
            got=name, help=did_you_mean(name, known))
    is_foreign = hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray)
    if is_foreign and getattr(value, "requires_grad", False):
        value = value.detach()
    found = from_dlpack(value) if is_foreign else np.asarray(value)
    for part in ("dtype", "shape"):
        if getattr(found, part) != getattr(before, part):
            raise InvalidInputError(f"the weight {name!r} has the wrong {part}",
                                    expected=f"Tensor[{before.shape}, {before.dtype}]",
                                    got=f"Tensor[{found.shape}, {found.dtype}]")
    return np.array(found, order="C", copy=True)


def adapter_of(adapter: Tensors) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The tensors of an adapter, and its configuration as peft writes it."""
    if isinstance(adapter, Mapping):
        return adapter, {}
    path = Path(adapter)
    if path.is_dir():
        path = path / "adapter_model.safetensors"
    file = path.with_name("adapter_config.json")
    try:
        config = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    except (OSError, ValueError) as error:
        raise InvalidInputError("the configuration of an adapter cannot be read", where=file,
                                got=error) from None
    return tensors_of(path), config if isinstance(config, dict) else {}


def changed_by_adapter(known: Mapping[str, np.ndarray], adapter: Mapping[str, Any],
                       config: Mapping[str, Any], scale: float) -> dict[str, np.ndarray]:
    """The weights that an adapter changes, with their new values."""
    return {f"{name}.weight": _changed(name, pair, bool(config.get("fan_in_fan_out")), known)
            for name, pair in low_rank_pairs(adapter, config, scale).items()}


def low_rank_pairs(adapter: Mapping[str, Any], config: Mapping[str, Any], scale: float
                   ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """A (r, in) and B (out, r) of each name, float32; the factor of the product is in B."""
    wanted = config.get("use_dora") or config.get("alpha_pattern") or config.get("rank_pattern")
    if wanted:
        raise InvalidInputError("an adapter of another kind than W + B @ A with one alpha",
                                got="use_dora, alpha_pattern or rank_pattern")
    parts: dict[str, dict[str, np.ndarray]] = {}
    for key, value in adapter.items():
        match = _ADAPTER.fullmatch(key)
        if match is None and key != "alpha":
            raise InvalidInputError("a tensor that is no part of a low-rank adapter", got=key,
                                    expected="NAME.lora_A.weight, NAME.lora_B.weight or alpha")
        if match is not None:
            array = np.asarray(value).astype(np.float32)
            parts.setdefault(match[1], {})[match[2] or "alpha"] = array
    default = adapter.get("alpha", config.get("lora_alpha"))
    return {name: _low_rank(name, pair, default, config, scale) for name, pair in parts.items()}


def _low_rank(name: str, pair: Mapping[str, np.ndarray], alpha: Any, config: Mapping[str, Any],
              scale: float) -> tuple[np.ndarray, np.ndarray]:
    down, up = pair.get("A"), pair.get("B")
    if down is None or up is None:
        raise InvalidInputError(f"half of an adapter of {name!r}", got=", ".join(pair),
                                expected=f"{name}.lora_A.weight and {name}.lora_B.weight")
    rank = down.shape[0] if down.ndim else 0
    if rank == 0 or up.ndim < 2 or up.size != up.shape[0] * rank:
        raise InvalidInputError(f"an adapter of {name!r} whose ranks differ",
                                got=f"A {down.shape}, B {up.shape}",
                                expected="A (r, in), B (out, r)")
    factor = float(np.asarray(pair.get("alpha", rank if alpha is None else alpha)).reshape(()))
    factor *= scale / (rank ** 0.5 if config.get("use_rslora") else rank)
    return down.reshape(rank, -1), np.float32(factor) * up.reshape(-1, rank)


def _changed(name: str, pair: tuple[np.ndarray, np.ndarray], transposed: bool,
             known: Mapping[str, np.ndarray]) -> np.ndarray:
    weight, (down, up) = known.get(f"{name}.weight"), pair
    if weight is None:
        raise InvalidInputError(f"the model has no weight '{name}.weight'", got=name,
                                help=did_you_mean(f"{name}.weight", known))
    delta = up @ down
    if transposed:
        delta = delta.T
    if weight.ndim < 2 or delta.shape[0] != weight.shape[0] or delta.size != weight.size:
        raise InvalidInputError(f"an adapter does not fit the weight '{name}.weight'",
                                got=f"A {down.shape}, B {up.shape}",
                                expected=f"B @ A of shape {weight.shape}")
    return (weight.astype(np.float32) + delta.reshape(weight.shape)).astype(weight.dtype)
