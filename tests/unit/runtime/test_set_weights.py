"""Weights of a compiled module by name: as if it had been compiled with them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import weft
from weft.codegen.llvm.backend import CpuBackend
from weft.runtime import artifact
from weft.support.errors import ArtifactError, InvalidInputError
from weft.support.fallback import FallbackWarning
from weft.support.safetensors_file import write_tensors

RNG = np.random.default_rng(0)
Weights = Mapping[str, np.ndarray]


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


WEIGHTS = {"fc.weight": random(4, 8), "fc.bias": random(4), "out.weight": random(4, 3)}
OTHERS = {name: random(*array.shape) for name, array in WEIGHTS.items()}
X = random(2, 8)


def model(weights: Weights, rows: str = "2") -> onnx.ModelProto:
    made = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> '
        f"g (float[{rows}, 8] x) => (float[{rows}, 3] y) {{ h = Gemm<transB = 1>(x, fc_weight, "
        "fc_bias)\n r = Relu(h)\n y = MatMul(r, out_weight) }")
    for node in made.graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = name.replace("_", ".")
    made.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in weights.items())
    return made


def compiled(weights: Weights = WEIGHTS, rows: str = "2") -> Any:
    return weft.compile(model(weights, rows))


def reference(weights: Weights, x: np.ndarray = X) -> np.ndarray:
    hidden = np.maximum(x @ weights["fc.weight"].T + weights["fc.bias"], 0)
    return hidden @ weights["out.weight"]


def assert_close(got: Any, expected: np.ndarray) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_names_and_arrays_are_those_of_the_model() -> None:
    found = compiled().weights()
    assert found.keys() == WEIGHTS.keys()
    assert all(np.array_equal(found[name], array) for name, array in WEIGHTS.items())


def test_bits_are_those_of_a_compilation_and_no_code_is_made(
        own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, mod = compiled(OTHERS)(X), compiled()
    for name in ("build_kernel", "build_main", "build_segments"):
        monkeypatch.setattr(CpuBackend, name, lambda *_: pytest.fail("code is made"))
    mod.set_weights(OTHERS)
    np.testing.assert_array_equal(mod(X), expected)
    mod.set_weights({"out.weight": WEIGHTS["out.weight"]})  # the others stay
    assert_close(mod(X), reference({**OTHERS, "out.weight": WEIGHTS["out.weight"]}))
    assert not mod.fallbacks.found


def test_arrays_are_copied_and_bound_calls_keep_theirs() -> None:
    mod, given = compiled(), {name: array.copy() for name, array in OTHERS.items()}
    run = mod.bind(X)
    mod.set_weights(given)
    given["fc.weight"][:] = 0
    assert_close(mod(X), reference(OTHERS))
    assert_close(run(), reference(WEIGHTS))
    assert np.array_equal(mod.weights()["fc.weight"], OTHERS["fc.weight"])


def test_programs_for_sizes_and_of_inner_tensors_have_them_too() -> None:
    mod = compiled(rows="n")
    for rows in (2, 5):
        x = random(rows, 8)
        mod(x)
        mod.set_weights(OTHERS if rows == 5 else WEIGHTS)
        assert_close(mod(x), reference(OTHERS if rows == 5 else WEIGHTS, x))
    x = random(3, 8)
    assert_close(mod.run(["h"], {"x": x})[0], x @ OTHERS["fc.weight"].T + OTHERS["fc.bias"])


def test_programs_per_shape_have_them_too() -> None:
    mod = weft.compile(model(WEIGHTS, rows="n"), symbolic_sizes=False)
    rows = [random(n, 8) for n in (2, 5)]
    for x in rows:
        assert_close(mod(x), reference(WEIGHTS, x))
    mod.set_weights(OTHERS)
    for x in rows:
        assert_close(mod(x), reference(OTHERS, x))


def test_a_program_that_values_decide_is_told() -> None:
    mod = compiled({**WEIGHTS, "fc.bias": np.zeros(4, np.float32)})
    with pytest.warns(FallbackWarning, match="another program is compiled for the weights fc.bias"):
        mod.set_weights({"fc.bias": WEIGHTS["fc.bias"]})
    assert_close(mod(X), reference(WEIGHTS))
    assert "another program is compiled" in mod.explain()


def test_files_come_back(tmp_path: Path) -> None:
    mod = compiled(OTHERS)
    mod.save_weights(tmp_path / "w.safetensors")
    other = compiled()
    other.set_weights(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(other(X), mod(X))
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_artifacts_give_and_take_them(tmp_path: Path) -> None:
    mod, path = compiled(), tmp_path / "m.weft"
    mod.set_weights(OTHERS)
    mod.export(path, check=False)
    loaded = weft.load(path)
    assert_close(loaded(X), reference(OTHERS))
    assert loaded.weights().keys() == WEIGHTS.keys()
    loaded.set_weights(WEIGHTS)
    assert_close(loaded(X), reference(WEIGHTS))


def test_artifacts_without_a_compiler_or_a_portable_form_say_so(tmp_path: Path) -> None:
    mod = compiled()
    for portable in (True, False):
        mod.export(tmp_path / "m.weft", check=False, portable=portable)
        load = artifact.load if portable else weft.load
        with pytest.raises(ArtifactError, match="does not contain weights by name"):
            load(tmp_path / "m.weft").set_weights(OTHERS)


@pytest.mark.parametrize(("given", "words"), [
    ({"fc.wieght": random(4, 8)}, "did you mean 'fc.weight'"),
    ({"fc.bias": random(4), "fc.weight": random(8, 4)}, "'fc.weight' has the wrong shape"),
    ({"fc.bias": np.zeros(4)}, "'fc.bias' has the wrong dtype"),
    (3, "expected: arrays by name, or the path"),
], ids=["name", "shape", "dtype", "no weights"])
def test_what_does_not_fit_changes_nothing(given: Any, words: str) -> None:
    mod = compiled()
    with pytest.raises(InvalidInputError, match=words):
        mod.set_weights(given)
    assert_close(mod(X), reference(WEIGHTS))


A, B = random(2, 8), random(4, 2)
PAIR = {"fc.lora_A.weight": A, "fc.lora_B.weight": B}


@pytest.mark.parametrize(("adapter", "factor"), [
    (PAIR, 1), ({**PAIR, "alpha": 6}, 3), ({**PAIR, "fc.alpha": np.float32(1)}, 0.5),
    ({f"base_model.model.{name}": array for name, array in PAIR.items()}, 1),
    ({name.replace(".weight", ".default.weight"): array for name, array in PAIR.items()}, 1),
], ids=["pair", "alpha", "alpha of one", "peft", "name of an adapter"])
def test_a_low_rank_adapter_comes_and_goes(adapter: Mapping[str, Any], factor: float) -> None:
    mod = compiled()
    before = mod.weights()
    mod.apply_lora(adapter, scale=0.5)
    changed = WEIGHTS["fc.weight"] + 0.5 * factor * (B @ A)
    assert_close(mod(X), reference({**WEIGHTS, "fc.weight": changed}))
    mod.set_weights(before)
    assert_close(mod(X), reference(WEIGHTS))


def test_the_configuration_of_a_folder_gives_alpha(tmp_path: Path) -> None:
    write_tensors(tmp_path / "adapter_model.safetensors", PAIR)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"lora_alpha": 8, "r": 2}))
    mod = compiled()
    mod.apply_lora(tmp_path)
    assert_close(mod.weights()["fc.weight"], WEIGHTS["fc.weight"] + 4 * (B @ A))
    (tmp_path / "adapter_config.json").write_text(json.dumps({"use_dora": True}))
    with pytest.raises(InvalidInputError, match="another kind"):
        mod.apply_lora(tmp_path)


@pytest.mark.parametrize(("adapter", "words"), [
    ({"fc.lora_A.weight": A}, "half of an adapter"),
    ({"fc.lora_A.weight": A, "fc.lora_B.weight": random(4, 3)}, "ranks differ"),
    ({"fc.lora_A.weight": random(2, 7), "fc.lora_B.weight": B}, "does not fit"),
    ({"f.lora_A.weight": A, "f.lora_B.weight": B}, "no weight 'f.weight'"),
    ({**PAIR, "fc.weight": A}, "no part of a low-rank adapter"),
], ids=["half", "ranks", "shape", "name", "others"])
def test_adapters_that_do_not_fit(adapter: Mapping[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        compiled().apply_lora(adapter)
