"""Bring your own code generator: composites and partitions."""

from __future__ import annotations

import pytest

from tests.unit.transform.helpers import check_example, check_values, op_calls, parse_program
from weft import op
from weft.ir.expr import Function, TupleGetItem, var
from weft.ir.module import IRModule
from weft.ir.rewrite.pattern import any_, const, optional
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import post_order
from weft.support.errors import RegistryError
from weft.transform.external.codegen import (
    EXTERNAL_CODEGENS,
    CompositePattern,
    register_external_codegen,
)
from weft.transform.external.merge_composite import MergeComposite
from weft.transform.external.partition_graph import PartitionGraph


@pytest.fixture
def acc():
    """A generator that is gone after the test."""
    def register(**options):
        return register_external_codegen("acc", **options)

    yield register
    EXTERNAL_CODEGENS.remove("acc")


def dense_relu():
    return CompositePattern("dense_relu", op.nn.relu(op.nn.dense(any_(), any_())))


def test_composite_example(acc):
    acc(patterns=[dense_relu()])
    check_example(MergeComposite(compiler="acc"))


def test_partition_example(acc):
    acc(supports=["nn.dense", "nn.relu"])
    check_example(PartitionGraph(compiler="acc"))


def _composites(mod):
    return [n.attrs["composite"] for n in post_order(mod["main"])
            if isinstance(n, Function) and "composite" in n.attrs]


def test_constants_stay_inside_and_optional_parts_are_taken(acc):
    pattern = optional(op.nn.relu, op.add(op.nn.dense(any_("x"), const("w")), const("b")))
    acc(patterns=[CompositePattern("layer", pattern)])
    mod = parse_program("""
        def @main(%x: Tensor[(1, 2), float32]) {
          %0 = nn.relu(add(nn.dense(%x, const([1, 2, 3, 4], (2, 2), float32)), 1f));
          add(2f, nn.dense(%0, const([1, 2, 3, 4], (2, 2), float32)))
        }""")
    after = MergeComposite(compiler="acc")(mod)
    check_values(mod, after)
    assert _composites(after) == ["layer", "layer"]
    functions = [n for n in post_order(after["main"].body) if isinstance(n, Function)]
    assert [len(f.params) for f in functions] == [1, 1]
    assert MergeComposite(compiler="acc")(after) is after


def test_what_is_used_elsewhere_or_refused_is_left_alone(acc):
    text = """
        def @main(%x: Tensor[(2, 2), float32]) {
          %0 = nn.dense(%x, %x);
          (nn.relu(%0), %0, nn.relu(nn.dense(%x, exp(%x))))
        }"""
    acc(patterns=[dense_relu()])
    mod = parse_program(text)
    after = MergeComposite(compiler="acc")(mod)
    check_values(mod, after)
    assert _composites(after) == ["dense_relu"]
    EXTERNAL_CODEGENS.remove("acc")
    never = CompositePattern("dense_relu", dense_relu().pattern, lambda _: False)
    acc(patterns=[never])
    assert MergeComposite(compiler="acc")(mod) is mod


def test_regions_are_convex(acc):
    acc(supports=["nn.dense", "add"])
    mod = parse_program("""
        def @main(%x: Tensor[(2, 2), float32]) {
          %0 = nn.dense(%x, %x);
          %1 = exp(%0);
          add(%1, add(%0, %0))
        }""")
    after = PartitionGraph(compiler="acc")(mod)
    check_values(mod, after)
    # dense and the inner add are one region; the outer add waits for exp, which waits for dense.
    assert op_calls(after) == ["exp"]
    regions = [f for f in after.functions.values() if f.attrs.get("compiler") == "acc"]
    assert len(regions) == 2
    assert sorted(sum(1 for n in post_order(f) if hasattr(n, "args")) for f in regions) == [1, 2]


def test_composites_tuples_and_several_results(acc):
    acc(supports=["split", "tanh"], patterns=[dense_relu()])
    mod = parse_program("""
        def @main(%x: Tensor[(2, 2), float32], %c: Tensor[(), bool]) {
          %0 = split(nn.relu(nn.dense(tanh(%x), %x)), indices_or_sections=2, axis=1);
          if (%c) { add(%0.0, %0.1) } else { multiply(tanh(%0.0), exp(%0.1)) }
        }""")
    after = PartitionGraph(compiler="acc")(mod)
    check_values(mod, after)
    assert len(after.functions) == 2
    assert op_calls(after) == ["add", "tanh", "exp", "multiply"]  # branches are not looked into


def test_small_regions_stay(acc):
    acc(supports=["tanh"])
    mod = parse_program("def @main(%x: Tensor[(2, 2), float32]) { exp(tanh(%x)) }")
    assert PartitionGraph(compiler="acc", min_calls=2)(mod) is mod


def test_long_chains_become_one_region(acc):
    acc(supports=["tanh", "split"])
    x = var("x", (2,))
    y = x
    for i in range(3000):
        y = op.tanh(y) if i % 3 else TupleGetItem(op.split(y, indices_or_sections=1), 0)
    after = PartitionGraph(compiler="acc")(infer_type(IRModule.from_expr(Function((x,), y))))
    assert len(after.functions) == 2


def test_unknown_generators_are_named():
    mod = parse_program("def @main(%x: Tensor[(2,), float32]) { exp(%x) }")
    with pytest.raises(RegistryError, match="unknown external code generator 'nobody'"):
        PartitionGraph(compiler="nobody")(mod)
