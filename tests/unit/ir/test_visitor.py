"""Walking and rebuilding."""

from __future__ import annotations

import pytest

from weft import op
from weft.ir import Call, Function, Let, Tuple, Var, const, infer_expr, infer_type, parse, var
from weft.ir.text.parser import parse_expr
from weft.ir.visitor import (
    binders,
    children,
    count_uses,
    enters,
    free_vars,
    post_order,
    rebuild,
    replace_children,
    rewrite_post_order,
    substitute,
    walk_of,
)
from weft.support.errors import InternalError

KINDS = """
type Box[A] { Box(A), }
def @main(%x: Tensor[(2,), float32]) {
  let %r = ref(%x);
  %0 = if (True) { ref_read(%r) } else { %x };
  %1 = match (Box((%0, %x))) { Box((%a, _)) => { add(%a, %a) }, };
  let %u = ref_write(%r, %1);
  (fn (%p: Tensor[(2,), float32]) { exp(%p) }(%1), %u).0
}
"""


def test_operands_come_first_and_each_node_once():
    order = list(post_order(parse(KINDS)["main"]))
    position = {id(node): i for i, node in enumerate(order)}
    assert len(position) == len(order)
    for node in order:
        assert all(position[id(c)] < position[id(node)] for c in children(node))


def test_a_rewrite_that_changes_nothing_returns_its_argument():
    fn = infer_type(parse(KINDS))["main"]
    assert rewrite_post_order(fn, lambda node: node) is fn


def test_every_kind_of_node_is_rebuilt():
    fn = parse(KINDS)["main"]
    z = var("z", (2,))
    renamed = rewrite_post_order(fn, lambda node: z if node is fn.params[0] else node)
    assert renamed.params == (z,)
    assert fn.params[0] not in set(post_order(renamed))
    assert str(renamed) == str(fn).replace("%x", "%z")


def test_parts_without_change_keep_identity_and_type():
    fn = infer_type(parse("def @main(%x: int32) { add(abs(%x), negative(%x)) }"))["main"]
    left, right = fn.body.args

    def swap(node):
        return op.abs(node.args[0]) if node is right else node

    body = rewrite_post_order(fn, swap).body
    assert body.args[0] is left
    assert body.checked_type is None


def test_shared_nodes_stay_shared():
    x = var("x", (2,))
    once = op.exp(x)
    body = op.add(once, once)
    result = substitute(body, {x: var("y", (2,))})
    assert result.args[0] is result.args[1]
    assert result.args[0] is not once


def test_enter_keeps_a_walk_out():
    inner = parse_expr("fn (%p: int32) { abs(%p) }")
    outer = Call(inner, (const(1),))
    seen = list(post_order(outer, enter=lambda node: not isinstance(node, Function)))
    assert inner in seen
    assert inner.body not in seen
    untouched = rewrite_post_order(
        outer,
        lambda node: const(2) if node is inner.params[0] else node,
        enter=lambda node: not isinstance(node, Function),
    )
    assert untouched is outer


def test_a_function_is_walked_once(monkeypatch):
    fn = parse(KINDS)["main"]
    order = list(post_order(fn))
    monkeypatch.setattr("weft.ir.visitor._walk", None)
    assert list(post_order(fn)) == list(post_order(fn, enter=enters)) == order
    assert walk_of(fn).functions == [node for node in order[:-1] if isinstance(node, Function)]


def test_a_kept_walk_does_not_keep_its_function():
    fn = parse(KINDS)["main"]
    list(post_order(fn))
    assert fn not in walk_of(fn).nodes  # else only the collector of garbage could free it


def test_passes_do_not_walk_kernels():
    kernel = parse_expr("fn (%p: int32, primitive=True) { abs(%p) }")
    outer = Function((), Call(kernel, (const(1),)))
    assert kernel.body in list(post_order(outer))
    assert kernel.body not in list(post_order(outer, enter=enters))
    assert list(post_order(kernel, enter=enters)) == [kernel]


def test_free_variables_in_order_of_use():
    x, y, v = var("x", (2,)), var("y", (2,)), Var("v")
    assert free_vars(Let(v, op.exp(y), op.add(v, x))) == (y, x)
    assert free_vars(Function((x, y), op.add(x, y))) == ()


def test_uses_count_places_not_binders():
    x = var("x", (2,))
    once = op.exp(x)
    uses = count_uses(Function((x,), Tuple((once, once, x))))
    assert (uses[once], uses[x]) == (2, 2)


def test_binders_of_every_scope():
    fn = parse(KINDS)["main"]
    names = [v.name for node in post_order(fn) for v in binders(node)]
    assert sorted(names) == ["a", "p", "r", "u", "x"]


def test_a_binder_cannot_become_a_value():
    fn = parse_expr("fn (%p: int32) { abs(%p) }")
    with pytest.raises(InternalError, match="binding variable"):
        substitute(fn, {fn.params[0]: const(1)})


def test_rebuild_with_the_same_parts_is_identity():
    x = var("x", (2,))
    call = op.exp(x)
    assert rebuild(call, [x]) is call
    assert rebuild(call, [var("y", (2,))]).attrs is call.attrs


def test_replaced_children_keep_the_type_and_equal_ones_the_node():
    call = infer_expr(parse_expr("fn (%p: Tensor[(2,), float32]) { exp(abs(%p)) }")).body
    assert replace_children(call, children(call)) is call
    other = infer_expr(op.negative(call.args[0]))
    changed = replace_children(call, [other])
    assert changed.args == (other,)
    assert changed.checked_type == call.checked_type
