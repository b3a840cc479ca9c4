"""Real architectures, built here with seeded random weights, by every way from torch to weft.

Each is exported to ONNX with fixed and with dynamic shapes, and compiled as a module, as an
exported program with dynamic shapes, and by ``torch.compile``. Results are compared with torch,
those of ONNX also with onnxruntime.
"""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import weft
from tests.onnxruntime_peer import run_onnxruntime

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxscript")
zoo = pytest.importorskip("benchmarks.torch_zoo")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    # The libraries that trace and export warn of their own deprecated calls.
    pytest.mark.filterwarnings("ignore"),
]
NAMES = tuple(zoo.ARCHITECTURES)
# Of the largest element of each result; both sides sum in float32.
TOLERANCE = 2e-5


@functools.cache
def module_of(name: str) -> Any:
    return zoo.ARCHITECTURES[name].module()


def inputs_of(name: str, batch: int = 2, length: int = 7) -> tuple[Any, ...]:
    return zoo.ARCHITECTURES[name].inputs(batch, length)


def other_inputs(name: str) -> tuple[Any, ...]:
    """Other sizes than those that were traced."""
    return inputs_of(name, 3, 7 if name == "lstm" else 5)


def tensors(result: Any) -> list[np.ndarray]:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [r.detach().numpy() if torch.is_tensor(r) else r for r in results]


def expected(name: str, inputs: Sequence[Any]) -> list[np.ndarray]:
    with torch.no_grad():
        return tensors(module_of(name)(*inputs))


def check(got: Any, wanted: Sequence[np.ndarray]) -> None:
    for mine, theirs in zip(tensors(got), wanted, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=TOLERANCE * np.abs(theirs).max())


def exported_to_onnx(name: str, dynamic_shapes: Any = None) -> Any:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        program = torch.onnx.export(module_of(name), inputs_of(name), dynamo=True, verbose=False,
                                    dynamic_shapes=dynamic_shapes)
    return program.model_proto


def feeds_of(model: Any, inputs: Sequence[Any]) -> dict[str, np.ndarray]:
    return {i.name: x.numpy() for i, x in zip(model.graph.input, inputs, strict=True)}


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("name", NAMES)
def test_onnx_of_fixed_sizes(name):
    model, inputs = exported_to_onnx(name), inputs_of(name)
    feeds = feeds_of(model, inputs)
    got = weft.compile(model).run(None, feeds)
    check(got, expected(name, inputs))
    check(got, run_onnxruntime(model, feeds))


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("name", NAMES)
def test_onnx_with_dynamic_shapes(name):
    model = exported_to_onnx(name, zoo.dynamic_shapes(name, module_of(name)))
    compiled = weft.compile(model)
    assert compiled.is_dynamic
    for inputs in (inputs_of(name), other_inputs(name)):
        feeds = feeds_of(model, inputs)
        got = compiled.run(None, feeds)
        check(got, expected(name, inputs))
        check(got, run_onnxruntime(model, feeds))


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("name", NAMES)
def test_module(name):
    inputs = inputs_of(name)
    check(weft.compile(module_of(name), example_inputs=inputs)(*inputs), expected(name, inputs))


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("name", NAMES)
def test_program_with_dynamic_shapes(name):
    module, inputs = module_of(name), inputs_of(name)
    program = torch.export.export(module, inputs, dynamic_shapes=zoo.dynamic_shapes(name, module))
    compiled = weft.compile(program)
    for given in (inputs, other_inputs(name)):
        check(compiled(*given), expected(name, given))


@pytest.mark.sample(0.2, 2)
@pytest.mark.parametrize("name", NAMES)
def test_torch_compile(name):
    torch._dynamo.reset()
    inputs = inputs_of(name)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=True):
        compiled = torch.compile(module_of(name), backend=weft.torch_backend)
        check(compiled(*inputs), expected(name, inputs))


@pytest.mark.sample(0.25, 1)
@pytest.mark.parametrize("name", ["resnet50", "bert", "llama", "gpt2_past"])
def test_torch_compile_of_sizes_that_vary(name):
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(module_of(name), backend=weft.torch_backend, dynamic=True)
        for inputs in (inputs_of(name), other_inputs(name)):
            check(compiled(*inputs), expected(name, inputs))
