"""Users' hooks, legalizations, decisions and converters, and the cache of whole models."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import ir, op
from weft.compiler.cache import model_key
from weft.compiler.extensions import is_own, is_self_contained
from weft.compiler.options import CompileOptions
from weft.frontend.source import open_source
from weft.strategy.decision import DECISIONS, decides
from weft.strategy.registry import (
    DEFAULT_SCHEDULES,
    LAYOUT_HOOKS,
    LEGALIZATIONS,
    alter_layout,
    default_schedule,
    legalize,
)
from weft.support.errors import RegistryError

pytestmark = pytest.mark.usefixtures("own_cache")

TEXT = "def @main(%x: Tensor[(4,), float32]) { sin(%x) }"
X = np.linspace(0.1, 1, 4, dtype=np.float32)


def result():
    return weft.compile(weft.parse(TEXT))(X)


def is_kept(model, options):
    """Whether the cache keeps the compiled model."""
    return not isinstance(model_key(open_source(model, None, options), options), str)


def key():
    """The key of the program; ``None`` if it is not kept."""
    options = CompileOptions.make()
    found = model_key(open_source(weft.parse(TEXT), None, options), options)
    return None if isinstance(found, str) else found.text


@pytest.fixture
def sine():
    """``sin``, whose hooks of the test end with the test."""
    record = ir.get_op("sin")
    hooks, origins = dict(record.hooks), dict(record.origins)
    yield record
    for table, kept in ((record.hooks, hooks), (record.origins, origins)):
        table.clear()
        table.update(kept)


def test_a_legalization_and_the_cache_do_not_meet():
    def is_cosine(call, types, ctx):
        return op.cos(call.args[0])

    np.testing.assert_allclose(result(), np.sin(X), rtol=1e-5)
    legalize("sin", target="cpu")(is_cosine)
    try:
        np.testing.assert_allclose(result(), np.cos(X), rtol=1e-5)
        LEGALIZATIONS.remove("cpu:sin")
        np.testing.assert_allclose(result(), np.sin(X), rtol=1e-5)
        legalize("sin", target="cpu")(is_cosine)
        assert key() is None
    finally:
        LEGALIZATIONS.remove("cpu:sin")
    assert key() is not None


def test_a_decomposition_and_the_cache_do_not_meet(sine):
    np.testing.assert_allclose(result(), np.sin(X), rtol=1e-5)
    sine.decomposition(lambda call: op.cos(call.args[0]))
    assert key() is None
    np.testing.assert_allclose(result(), np.cos(X), rtol=1e-5)
    del sine.hooks["decomposition"], sine.origins["decomposition"]
    np.testing.assert_allclose(result(), np.sin(X), rtol=1e-5)


def test_hooks_of_one_operator_concern_all_models(sine):
    """A decomposition or a converter may bring the operator into a model that does not name it."""
    other = weft.parse("def @main(%x: Tensor[(4,), float32]) { exp(%x) }")
    assert is_kept(other, CompileOptions.make())
    sine.decomposition(lambda call: None)
    assert not is_kept(other, CompileOptions.make())


def test_a_kernel_with_a_user_s_decision_is_not_self_contained():
    options = CompileOptions.make()
    function = weft.parse(TEXT)["main"]
    assert is_self_contained(function, options.target)
    decides("sin", target="cpu")(lambda call, target: None)
    try:
        assert not is_self_contained(function, options.target)
        assert key() is None
    finally:
        DECISIONS.remove("cpu:sin")


def test_an_onnx_converter_of_a_user_and_the_cache_do_not_meet():
    helper = pytest.importorskip("onnx.helper")
    registry = pytest.importorskip("weft.frontend.onnx.registry")
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Foo", ["x"], ["y"], domain="acme")], "net",
                              [value("x", 1, (4,))], [value("y", 1, (4,))])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("acme", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()
    options = CompileOptions.make()
    assert is_kept(model, options)
    try:
        for function, expected in ((op.exp, np.exp(X)), (op.negative, -X)):
            registry.register("acme::Foo", lambda node, apply=function: ir.infer_expr(
                apply(node.inputs[0])))
            np.testing.assert_allclose(weft.compile(model)(X), expected, rtol=1e-5)
        assert not is_kept(model, options)
        assert key() is not None  # not an ONNX model
    finally:
        del registry.CONVERTERS.entries["acme::Foo"]
    assert is_kept(model, options)


@pytest.mark.parametrize("register", [legalize, alter_layout, decides])
def test_functions_are_registered_for_known_operators_and_targets(register):
    with pytest.raises(RegistryError, match=r"unknown operator 'nn\.rellu'"):
        register("nn.rellu", target="cpu")(len)
    with pytest.raises(RegistryError, match="unknown kind of target 'cup'"):
        register("nn.relu", target="cup")(len)
    for registry in (LEGALIZATIONS, LAYOUT_HOOKS, DECISIONS):
        assert "cup:nn.relu" not in registry


def test_a_default_schedule_is_registered_for_a_known_target():
    with pytest.raises(RegistryError, match="unknown kind of target 'cup'"):
        default_schedule(target="cup", seconds=lambda call, target: 0.0)(len)
    assert "cup" not in DEFAULT_SCHEDULES


def test_a_function_of_no_module_is_a_users():
    names: dict = {}
    exec("def strategy(call, target): ...", names)
    names["strategy"].__module__ = None
    assert not is_own(names["strategy"])
