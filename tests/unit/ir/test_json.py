"""Modules as JSON: round trip, versions, damage."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import weft
from tests.unit.ir.programs import arrays, modules
from tests.unit.ir.test_deep import call_chain, let_chain
from tests.unit.ir.test_text import EVERYTHING
from weft import op
from weft.ir import (
    Constant,
    Function,
    IRModule,
    assert_structural_equal,
    infer_type,
    parse,
    prelude,
    structural_hash,
    var,
)
from weft.ir.json import format as json_format
from weft.ir.json.format import load_json, save_json
from weft.ir.span import Span
from weft.ir.typing.infer import infer_expr
from weft.ir.visitor import post_order
from weft.support.errors import ParseError

OLD = Path(__file__).parent / "old_versions"


@given(modules())
@settings(max_examples=50, deadline=None)
def test_random_modules_round_trip(mod):
    again = load_json(save_json(mod))
    assert_structural_equal(again, mod)
    assert structural_hash(again) == structural_hash(mod)


@given(arrays())
@settings(max_examples=50, deadline=None)
def test_constants_of_every_dtype_keep_their_bits(array):
    mod = IRModule.from_expr(Function((), Constant(array)))
    body = load_json(save_json(mod))["main"].body
    assert body.data.dtype == array.dtype
    assert body.data.tobytes() == array.tobytes()
    assert body.data.shape == array.shape


def test_everything_and_the_prelude_round_trip():
    for mod in (parse(EVERYTHING), prelude()):
        again = load_json(save_json(mod))
        assert_structural_equal(again, mod)
        assert_structural_equal(infer_type(again), infer_type(mod))


def test_spans_are_kept():
    mod = parse("def @main(%x: float32) {\n  exp(%x)\n}", source="a.weft")
    nodes = post_order(load_json(save_json(mod))["main"])
    (call,) = [n for n in nodes if n.span and n.span.line == 2]
    assert call.span == Span("a.weft", 2, 3, end_line=2, end_column=10)


@pytest.mark.parametrize("make", [call_chain, let_chain])
def test_deep_programs(make):
    mod = make(20_000)
    assert_structural_equal(load_json(save_json(mod)), mod)


def test_sharing_is_kept():
    mod = parse("def @main(%x: float32) { %0 = exp(%x); add(%0, %0) }")
    body = load_json(save_json(mod))["main"].body
    assert body.args[0] is body.args[1]


def test_special_attribute_values():
    attrs = {"a": float("inf"), "b": (1, (2.5, None)), "c": {"k": True}, "d": np.float32(0.5),
             "e": b"\0raw\xff"}
    mod = IRModule({}, attrs=attrs)
    assert load_json(save_json(mod)).attrs == {**attrs, "d": 0.5}
    assert parse(str(mod)).attrs == {**attrs, "d": 0.5}


@pytest.mark.parametrize("path", sorted(OLD.iterdir()), ids=lambda p: p.name)
def test_modules_of_earlier_versions_are_read(path):
    text = path.read_text(encoding="utf-8")
    mod = load_json(text) if path.suffix == ".json" else parse(text)
    assert_structural_equal(mod, parse(EVERYTHING))
    infer_type(mod)


def test_upgrades_run_one_version_at_a_time(monkeypatch):
    def to(version):
        return lambda document: {**document, "functions": {
            f"{name}_{version}": i for name, i in document["functions"].items()}}

    text = save_json(parse("def @main(%x: float32) { %x }")).replace('"version": 3', '"version": 1')
    monkeypatch.setattr(json_format, "UPGRADES", {1: to(2)})
    with pytest.raises(ParseError, match="cannot be upgraded"):
        load_json(text)
    monkeypatch.setattr(json_format, "UPGRADES", {1: to(2), 2: to(3)})
    assert list(load_json(text).functions) == ["main_2_3"]


def test_constants_outside_of_the_text():
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    mod = parse("def @main(%x: Tensor[(2, 3), float32]) { %x }")
    main = mod["main"]
    mod = mod.with_function("main", main.replace(body=op.add(main.params[0], Constant(data))))
    kept = {}

    def keep(array):
        kept["w"] = array.tobytes()
        return {"name": "w"}

    text = save_json(mod, keep)
    assert_structural_equal(load_json(text, kept=lambda place: kept[place["name"]]), mod)
    with pytest.raises(ParseError, match="outside of the text"):
        load_json(text)


def test_files_of_all_versions_are_kept():
    versions = {json.loads(path.read_text(encoding="utf-8"))["version"]: path
                for path in OLD.glob("*.json")}
    assert set(versions) == {*range(1, json_format.VERSION + 1)}
    assert load_json(versions[1].read_text(encoding="utf-8")).named == {}
    for later in (2, 3):
        assert list(load_json(versions[later].read_text(encoding="utf-8")).named) == ["layer/out"]


def test_names_of_tensors_are_kept():
    mod = infer_type(parse("def @main(%x: Tensor[(2,), float32]) { %0 = exp(%x); tanh(%0) }"))
    body = mod["main"].body
    aside = infer_expr(op.negative(body.args[0]), trust=True)
    elsewhere = op.exp(var("z", (2,)))  # of a function that a pass has replaced
    mod = dataclasses.replace(mod, named={"layer/out": body.args[0], "aside": aside,
                                          "lost": elsewhere})
    again = load_json(save_json(mod))
    assert list(again.named) == ["layer/out", "aside"]
    assert again.named["layer/out"] is again["main"].body.args[0]
    assert again.named["aside"].args[0] is again.named["layer/out"]
    value = np.float32([1, 2])
    model = weft.compile(again, outputs=["layer/out", "aside"])
    np.testing.assert_allclose(model(value), [np.exp(value), -np.exp(value)], rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda d: d.update(version=99), "unsupported module version"),
        (lambda d: d.update(format="nnvm"), "not a module of weft"),
        (lambda d: d["nodes"].pop(), "corrupt"),
        (lambda d: d["nodes"][1].update(kind="Gadget"), "corrupt"),
        (lambda d: d["nodes"][1].update(name="nn.rellu"), "unknown operator 'nn.rellu'"),
        (lambda d: d["types"].pop(), "corrupt"),
        (lambda d: d["functions"].update(main=0), "not a function"),
    ],
)
def test_damage_is_reported(change, what):
    document = json.loads(save_json(parse("def @main(%x: float32) { exp(%x) }")))
    change(document)
    with pytest.raises(ParseError, match=what):
        load_json(json.dumps(document), source="m.json")


def test_text_that_is_not_json():
    with pytest.raises(ParseError, match="invalid JSON"):
        load_json("{")
    with pytest.raises(ParseError, match="invalid JSON"):
        load_json("[" * 1_000_000)
