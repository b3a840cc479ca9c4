"""Programs with branches, loops and functions give the bits of one device, however they are cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.distributed.test_rank_module import results_of
from tests.unit.transform.sharding.programs import (
    COLUMNS,
    MESHES,
    ROWS,
    grown,
    numbers,
    random_sharding,
    shape_of,
)
from tests.unit.transform.sharding.test_pad_axes import any_sharding
from weft import op
from weft.distributed import Link, Mesh, Sharding, ShardingPlan, run_local, shard
from weft.ir import (
    Call,
    Expr,
    Function,
    GlobalVar,
    If,
    IRModule,
    Op,
    Tuple,
    TupleGetItem,
    const,
    infer_expr,
    infer_type,
    post_order,
    var,
)
from weft.support.errors import OptionError, PassError
from weft.transform.analysis.reference import evaluate
from weft.transform.sharding.blocks import Branch, Repeat
from weft.transform.sharding.loops import Loop, iterations_of, loops_of
from weft.transform.sharding.pad_axes import partition_padded
from weft.transform.sharding.partition import partition
from weft.transform.sharding.unroll import unrolled

P = Sharding.of


def some(rng: np.random.Generator, values: list[Expr], shape: tuple[int, ...] | None = None
         ) -> Expr:
    """A value after a few random calls, of that shape; all of them become known."""
    for _ in range(int(rng.integers(1, 4))):
        made = infer_expr(grown(rng, values), trust=True)
        if min(shape_of(made)) % 2 == 0 and max(shape_of(made)) <= 96:
            values.append(made)
    fitting = [v for v in values if shape is None or shape_of(v) == shape]
    return op.clip(fitting[-1], a_min=-8.0, a_max=8.0) if fitting else op.broadcast_to(
        op.clip(op.sum(values[-1]), a_min=-8.0, a_max=8.0), shape=shape)


def branch(rng: np.random.Generator, values: list[Expr], size: Expr) -> Expr:
    known = list(values)
    yes = infer_expr(some(rng, known), trust=True)
    no = some(rng, list(values), shape_of(yes))
    return If(op.greater(op.sum(values[-1]), op.cast(size, dtype="float32")), yes, no)


def loop(rng: np.random.Generator, values: list[Expr]) -> Function:
    """``@loop(i, n, read, a, b)``: a, b become other matrices of their sizes, n times."""
    i, n = var("i", (), "int32"), var("n", (), "int32")
    state = [var(name, shape_of(v)) for name, v in zip("abc", values, strict=True)]
    known: list[Expr] = list(state)
    a, b = (some(rng, known, shape_of(s)) for s in state[1:])
    again = Call(GlobalVar("loop"), (op.add(i, const(1, "int32")), n, state[0], a, b))
    done = Tuple((state[1], branch(rng, [*state], n)))
    kind = infer_expr(done).checked_type
    body = If(op.less(i, n), again, done)
    return Function((i, n, *state), body, kind)


def random_program(rng: np.random.Generator) -> IRModule:
    x, y, n = var("x", (ROWS, COLUMNS)), var("y", (COLUMNS, ROWS)), var("n", (), "int32")
    values: list[Expr] = [x, y]
    some(rng, values)
    values.append(infer_expr(branch(rng, values, n), trust=True))
    chosen = [values[rng.integers(len(values))] for _ in range(3)]
    function = loop(rng, chosen)
    result = Call(GlobalVar("loop"), (const(0, "int32"), n, *chosen),
                  checked_type=function.ret_type)
    parts = [TupleGetItem(result, k, checked_type=function.ret_type.fields[k]) for k in range(2)]
    values += parts
    main = Function((x, y, n), Tuple((some(rng, values), parts[0], op.sum(parts[1]))))
    return infer_type(IRModule({"main": main, "loop": function}))


def cut(module: IRModule, rng: np.random.Generator) -> ShardingPlan:
    main, mesh = module["main"], MESHES[rng.integers(len(MESHES))]
    given = [random_sharding(rng, shape_of(p), mesh) if rng.random() < 0.8 else None
             for p in main.params]
    values = {n: random_sharding(rng, shape_of(n), mesh) for n in post_order(main.body)
              if isinstance(n, Call) and isinstance(n.op, Op) and rng.random() < 0.2}
    made = partition(main, mesh, given, values=values, loops=loops_of(module))
    return ShardingPlan(module, made)


@pytest.mark.sample(0.04)
@pytest.mark.parametrize("seed", range(100))
def test_random_programs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = random_program(rng)
    plan = cut(module, rng)
    inputs = [numbers(rng, ROWS, COLUMNS), numbers(rng, COLUMNS, ROWS),
              np.int32(rng.integers(0, 4))]
    whole = flat(evaluate(module, inputs))
    for a, b in zip(whole, flat(evaluate(infer_type(unrolled(plan.part)), inputs)), strict=True):
        np.testing.assert_array_equal(a, b)
    if seed % 5 == 0:
        for a, b in zip(whole, results_of(plan, inputs), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.sample(0.04)
@pytest.mark.parametrize("seed", range(100))
def test_random_programs_with_padding(seed: int) -> None:
    rng = np.random.default_rng(seed)
    module = random_program(rng)
    main, mesh = module["main"], Mesh({"a": 5}) if seed % 2 else Mesh({"a": 3, "b": 5})
    given = [any_sharding(rng, len(shape_of(p)), mesh) if shape_of(p) else None
             for p in main.params]
    try:
        made = partition_padded(main, mesh, given, values={}, results=None,
                                loops=loops_of(module))
    except PassError as error:
        assert "with padding" in str(error)  # noqa: PT017 - as most are
        return
    inputs = [numbers(rng, ROWS, COLUMNS), numbers(rng, COLUMNS, ROWS), np.int32(seed % 4)]
    for a, b in zip(flat(evaluate(module, inputs)),
                    flat(evaluate(infer_type(unrolled(made)), inputs)), strict=True):
        np.testing.assert_array_equal(a, b)


def flat(value: Any) -> list[np.ndarray]:
    return [x for v in value for x in flat(v)] if isinstance(value, tuple) else [value]


SCAN = """
def @step(%h: Tensor[(4, 8), float32], %x: Tensor[(4, 6), float32], %wx: Tensor[(8, 6), float32],
          %wh: Tensor[(8, 8), float32]) {
  clip(add(nn.dense(%x, %wx), nn.dense(%h, %wh)), a_min=-8.0, a_max=8.0)
}
def @main(%xs: Tensor[(5, 4, 6), float32], %wx: Tensor[(8, 6), float32],
          %wh: Tensor[(8, 8), float32]) {
  let %scan = fn (%i: Tensor[(), int64], %h: Tensor[(4, 8), float32],
                  %ys: Tensor[(5, 4, 8), float32])
      -> (Tensor[(4, 8), float32], Tensor[(5, 4, 8), float32]) {
    if (less(%i, 5i64)) {
      let %next = @step(%h, take(%xs, %i, axis=0), %wx, %wh);
      %scan(add(%i, 1i64), %next,
            scatter_nd(%ys, reshape(%i, newshape=[1]), %next, mode="update"))
    } else { (%h, %ys) }
  };
  %scan(0i64, zeros(shape=[4, 8], dtype="float32"), zeros(shape=[5, 4, 8], dtype="float32"))
}"""


def scan_arrays() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [numbers(rng, *s) for s in ((5, 4, 6), (8, 6), (8, 8))]


def operators(function: Function) -> list[str]:
    return [n.op.name for n in post_order(function.body)
            if isinstance(n, Call) and isinstance(n.op, Op)]


@pytest.mark.parametrize(("shardings", "in_loop"), [
    ({"xs": P(None, "a", None)}, []),
    ({"wx": P("a", None), "wh": P(None, "a")}, ["reduce_scatter"]),
], ids=["batch", "tensor parallel"])
def test_a_recurrent_layer(shardings: dict[str, Sharding], in_loop: list[str]) -> None:
    """Its state starts with zeros that all devices have, and is cut in all iterations."""
    model = weft.parse(SCAN)
    plan = shard(model, Mesh({"a": 2}), shardings)
    (name,) = plan.part.functions
    found = [n.removeprefix("collective.") for n in operators(plan.part.functions[name])
             if n.startswith("collective.")]
    assert found == in_loop
    assert not [n for n in operators(plan.local) if "collective.all" in n]
    assert not plan.part.results[0].is_replicated
    want = weft.compile(model)(*scan_arrays())
    for found in (plan.compile()(*scan_arrays()), results_of(plan, scan_arrays())):
        for a, b in zip(want, found, strict=True):
            np.testing.assert_array_equal(a, b)
    with pytest.raises(OptionError, match="branches or loops"):
        plan.compile(["sim:0", "sim:1"])
    assert any(isinstance(s, Repeat) for s in plan.steps) == bool(in_loop)


def test_the_state_is_cut_as_costs_the_least_in_an_iteration() -> None:
    """A state that comes whole is cut once, before the loop, and not gathered in iterations."""
    model = weft.parse("""
    def @main(%x: Tensor[(8, 4), float32], %y: Tensor[(8, 4), float32], %n: Tensor[(), int32]) {
      let %loop = fn (%i: Tensor[(), int32], %s: Tensor[(8, 4), float32])
          -> Tensor[(8, 4), float32] {
        if (less(%i, %n)) { %loop(add(%i, 1), maximum(negative(%s), %y)) } else { %s }
      };
      %loop(0, nn.relu(%x))
    }""")
    plan = shard(model, Mesh({"a": 4}), {"x": Sharding.replicated(2), "y": P("a", None)})
    assert plan.bytes_received == 0
    assert plan.part.results == (P("a", None),)


def test_a_condition_is_whole_on_all_devices() -> None:
    model = weft.parse("""
    def @main(%x: Tensor[(8, 4), float32]) {
      if (greater(sum(%x), 0f)) { nn.relu(%x) } else { add(%x, sum(%x, axis=[0])) }
    }""")
    plan = shard(model, Mesh({"a": 2}), {"x": P("a", None)})
    assert operators(plan.local).count("collective.all_reduce") == 2
    assert isinstance(plan.steps[-1], Branch)
    for sign in (1, -1):
        x = sign * np.ones((8, 4), np.float32)
        for found in (plan.compile()(x), *results_of(plan, [x])):
            np.testing.assert_array_equal(found, weft.compile(model)(x))


@pytest.mark.parametrize(("limit", "step", "times"), [
    ("5i64", "1i64", 5), ("5i64", "2i64", 3), ("0i64", "1i64", 0), ("%n", "1i64", 1)],
    ids=["counts", "by twos", "never", "unknown"])
def test_bytes_count_a_loop_as_often_as_it_runs(limit: str, step: str, times: int) -> None:
    model = weft.parse("""
    def @main(%x: Tensor[(8, 4), float32], %n: Tensor[(), int64]) {
      let %loop = fn (%i: Tensor[(), int64], %s: Tensor[(8, 4), float32])
          -> Tensor[(8, 4), float32] {
        if (less(%i, LIMIT)) { %loop(add(%i, STEP), add(%s, sum(%s, axis=[0]))) } else { %s }
      };
      %loop(0i64, %x)
    }""".replace("LIMIT", limit).replace("STEP", step))
    plan = shard(model, Mesh({"a": 2}), {"x": P("a", None)})
    assert plan.bytes_received == times * 4 * 4
    assert [e.nbytes for e in plan.exchanges()] == [times * 4 * 4]
    if limit != "%n":
        arrays = [np.ones((8, 4), np.float32), np.int64(0)]

        def received(world: Any) -> float:
            module = plan.compile(communicator=world)
            found = module.profile(*module.cut(*arrays))
            return sum(step.nbytes for step in found if not isinstance(step.step, Repeat))

        assert run_local(2, received) == [plan.bytes_received] * 2


@pytest.mark.parametrize(("limit", "step", "times"), [
    (2**62 + 1, 1, 2**62 + 1), (7, 3, 3), (np.inf, 1.0, None), (np.nan, 1.0, None)])
def test_loops_count_integers(limit: float, step: float, times: int | None) -> None:
    dtype = "int64" if isinstance(limit, int) else "float32"
    counter = var("i", (), dtype)
    again = Call(GlobalVar("loop"), (op.add(counter, const(step, dtype)),))
    body = If(op.less(counter, const(limit, dtype)), again, counter)
    loop = Loop("loop", (counter,), body, (again, counter), (body,))
    assert iterations_of(loop, [const(0, dtype)]) == times


def test_predictions_take_a_loop_once() -> None:
    link = Link(1e9, 1e-6)
    rows = shard(weft.parse(SCAN), Mesh({"a": 2}, {"a": link}), {"wx": P("a", None)}).predict([2])
    assert rows.rows[0].seconds > rows.rows[0].computing > 0


@pytest.mark.parametrize(("text", "said"), [
    ("""def @main(%x: Tensor[(4,), float32]) { @f(%x) }
        def @f(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {
          if (greater(sum(%x), 0f)) { negative(@f(negative(%x))) } else { %x }
        }""", "@f calls itself before its end"),
    ("""def @main(%x: Tensor[(4,), float32]) { @f(%x) }
        def @f(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] { @f(%x) }""", "never ends"),
    ("""def @main(%x: Tensor[(4,), float32]) { @f(%x) }
        def @f(%x: Tensor[(4,), float32]) -> Tensor[(4,), float32] {
          if (greater(sum(%x), 0f)) { @g(%x) } else { %x } }
        def @g(%x: Tensor[(4,), float32], noinline=True) -> Tensor[(4,), float32] {
          @f(negative(%x))
        }""", "calls itself through other functions"),
], ids=["inner", "endless", "mutual"])
def test_other_recursion_is_refused(text: str, said: str) -> None:
    with pytest.raises(PassError, match=said):
        shard(weft.parse(text), Mesh({"a": 2}), {"x": P("a")})


def test_padding_flows_through_branches_and_loops() -> None:
    branches = weft.parse("""
    def @main(%x: Tensor[(7, 4), float32], %y: Tensor[(7, 4), float32]) {
      if (greater(sum(%x), 0f)) { (nn.relu(%x), %y) } else { (%y, negative(%x)) }
    }""")
    loop = weft.parse("""
    def @main(%x: Tensor[(7, 4), float32], %y: Tensor[(7, 4), float32]) { @f(0, sum(%y), %x, %y) }
    def @f(%i: Tensor[(), int32], %n: Tensor[(), float32], %x: Tensor[(7, 4), float32],
           %y: Tensor[(7, 4), float32])
        -> (Tensor[(7, 4), float32], Tensor[(), float32]) {
      if (less(%i, 3)) { @f(add(%i, 1), %n, %y, add(%x, sum(%y, axis=[0]))) } else { (%x, %n) }
    }""")
    rng = np.random.default_rng(0)
    for model in (branches, loop):
        plan = shard(model, Mesh({"a": 2}), {"x": P("a", None)}, pad=True)
        for sign in (1, -1):
            arrays = [sign * abs(numbers(rng, 7, 4)), numbers(rng, 7, 4)]
            whole = weft.compile(model)(*arrays)
            for found in (plan.compile()(*arrays), results_of(plan, arrays)):
                for a, b in zip(whole, found, strict=True):
                    np.testing.assert_array_equal(a, b)
    (padded,) = plan.part.functions.values()
    assert [p.checked_type.shape for p in padded.params[2:4]] == [(4, 4), (8, 4)]


def test_a_state_that_cannot_be_padded_is_refused() -> None:
    turns = weft.parse("""
    def @main(%x: Tensor[(6, 3), float32], %n: Tensor[(), int32]) { @f(0, %n, %x) }
    def @f(%i: Tensor[(), int32], %n: Tensor[(), int32], %x: Tensor[(6, 3), float32])
        -> Tensor[(6, 3), float32] {
      if (less(%i, %n)) { @f(add(%i, 1), %n, sort(%x, axis=0)) } else { %x }
    }""")
    with pytest.raises(PassError, match="sort cannot take dimension 0 of operand 0 with padding"):
        shard(turns, Mesh({"a": 4}), {"x": P("a", None)}, pad=True)
    assert shard(turns, Mesh({"a": 3}), {"x": P(None, "a")}, pad=True).part.functions
