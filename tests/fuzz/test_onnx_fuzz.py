"""Damaged models: importing one gives a ``WeftError``, or a module that computes the right thing.

Every seed is a case of its own that can be run alone. Where onnxruntime accepts a damaged model
too, the values are compared.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto

import weft
from tests.fuzz.mutate import mutate_bytes, mutate_fields
from tests.fuzz.small_models import branching, convolutional, shape_shuffling, transforming
from tests.models.randomize import light_model_path
from tests.onnxruntime_peer import run_onnxruntime
from weft.frontend.onnx import from_onnx
from weft.ir.expr import Constant
from weft.ir.module import IRModule
from weft.ir.types import TensorType, is_static
from weft.ir.visitor import post_order
from weft.support.errors import InternalError, WeftError
from weft.transform.analysis.reference import evaluate

SMALL = {"convolutional": convolutional, "shape_shuffling": shape_shuffling}
# Damage mostly makes these ill-formed; what is left is not evaluated.
IMPORTED = {"branching": branching, "transforming": transforming}
LIGHT = ("bvlc_alexnet", "squeezenet", "shufflenet")
QUICK_ROUNDS, SLOW_ROUNDS = range(4), range(4, 40)
SEEDS_PER_ROUND = 50
# Of the damaged models of a round, so many have values that are compared. Damaged bytes leave few.
MIN_COMPARED = {"bytes": 0, "fields": 2}
MAX_ELEMENTS = 1 << 16


def imported(model: ModelProto | bytes) -> IRModule | None:
    """The module, or ``None`` where the model is refused with an error that says something."""
    try:
        return from_onnx(model)
    except WeftError as error:
        if isinstance(error, InternalError) or not error.what:
            raise
        return None


def evaluable(module: IRModule) -> bool:
    """Whether all tensors are small and of known shape, and no sum is likely to overflow."""
    types = [node.checked_type for node in post_order(module["main"].body)]
    return (
        is_tame(module)
        and all(is_static(t) for t in types)
        and all(
            np.prod(t.concrete_shape, dtype=float) <= MAX_ELEMENTS
            for t in types
            if isinstance(t, TensorType)
        )
    )


def is_tame(module: IRModule) -> bool:
    constants = [n.data for n in post_order(module["main"].body) if isinstance(n, Constant)]
    return all(np.abs(c).max(initial=0) < 1e6 for c in constants if c.dtype.kind == "f")


def random_inputs(module: IRModule, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    types = [p.checked_type for p in module["main"].params]
    return {
        name: rng.uniform(-1, 1, t.concrete_shape).astype(t.dtype.numpy)
        for name, t in zip(module.attrs["input_names"], types, strict=True)
    }


def onnxruntime_values(data: bytes, feeds: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """``None`` where onnxruntime refuses the model."""
    try:
        return run_onnxruntime(data, feeds)
    except Exception:  # noqa: BLE001 - its errors share no base class
        return None


def as_list(result: Any) -> list[np.ndarray]:
    return list(result) if isinstance(result, tuple) else [result]


def check_values(module: IRModule, data: bytes, seed: int, *, compiled: bool = False) -> bool:
    """The interpreter against onnxruntime, compiled code against both; whether one was there."""
    feeds = random_inputs(module, seed)
    inputs = [feeds[n] for n in module.attrs["input_names"]]
    interpreted = as_list(evaluate(module, inputs))
    peer = onnxruntime_values(data, feeds)
    actual = as_list(weft.compile(module)(*inputs)) if compiled else interpreted
    others = [interpreted] if compiled else []
    others += [] if peer is None else [peer]
    for expected in others:
        assert_close(actual, expected)
    return bool(others)


def assert_close(actual: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """Equal up to rounding where the expected number is finite.

    Where numbers overflow depends on the order of the sums, so others may be any that is not
    finite or near the end of the range.
    """
    for a, e in zip(actual, expected, strict=True):
        assert a.shape == np.shape(e)
        assert a.dtype == np.asarray(e).dtype
        wide, found = np.asarray(e, np.float64), np.asarray(a, np.float64)
        finite = np.isfinite(wide)
        scale = max(1.0, float(np.abs(wide[finite]).max(initial=0)))
        np.testing.assert_allclose(found[finite], wide[finite], rtol=1e-3, atol=1e-4 * scale)
        large = np.finfo(np.float32).max / 1e3
        assert (~np.isfinite(found[~finite]) | (np.abs(found[~finite]) > large)).all()


def fuzz(model: ModelProto, name: str, kind: str, seed: int, *, compiled: bool = False) -> bool:
    """Import a damaged model; whether values were compared. Errors are those of weft's family."""
    rng = random.Random(f"{name}/{kind}/{seed}")
    data: Any
    if kind == "bytes":
        data = mutate_bytes(model.SerializeToString(), rng)
    else:
        data = mutate_fields(model, rng).SerializeToString()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        module = imported(data)
    return (module is not None and name in SMALL and evaluable(module)
            and check_values(module, data, seed, compiled=compiled))


def run_round(name: str, kind: str, number: int, *, compiled: bool = False) -> None:
    makers = SMALL | IMPORTED
    model = makers[name]() if name in makers else onnx.load(light_model_path(name))
    compared = 0
    for seed in range(number * SEEDS_PER_ROUND, (number + 1) * SEEDS_PER_ROUND):
        try:
            compared += fuzz(model, name, kind, seed, compiled=compiled)
        except Exception as error:
            error.add_note(f"seed: {name}/{kind}/{seed}")
            raise
    assert name not in SMALL or compared >= MIN_COMPARED[kind], f"{compared} were compared"


@pytest.mark.parametrize("name", [*SMALL, *IMPORTED])
def test_undamaged_models_import_and_agree(name: str) -> None:
    model = (SMALL | IMPORTED)[name]()
    module = from_onnx(model)
    feeds = random_inputs(module, 0)
    assert onnxruntime_values(model.SerializeToString(), feeds) is not None
    check_values(module, model.SerializeToString(), 0)


@pytest.mark.parametrize("number", QUICK_ROUNDS)
@pytest.mark.parametrize("kind", ["bytes", "fields"])
@pytest.mark.parametrize("name", SMALL)
def test_damaged_small_models(name: str, kind: str, number: int) -> None:
    run_round(name, kind, number)


@pytest.mark.parametrize("kind", ["bytes", "fields"])
@pytest.mark.parametrize("name", [*IMPORTED, *LIGHT])
def test_damaged_models_import_or_are_refused(name: str, kind: str) -> None:
    run_round(name, kind, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bytes", "fields"])
@pytest.mark.parametrize("name", SMALL)
def test_damaged_small_models_compiled(name: str, kind: str) -> None:
    run_round(name, kind, 0, compiled=True)


@pytest.mark.sample(0.12)
@pytest.mark.slow
@pytest.mark.parametrize("number", SLOW_ROUNDS)
@pytest.mark.parametrize("kind", ["bytes", "fields"])
@pytest.mark.parametrize("name", [*SMALL, *LIGHT])
def test_damaged_models_at_length(name: str, kind: str, number: int) -> None:
    run_round(name, kind, number)
