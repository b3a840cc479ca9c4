"""What a schedule refuses, when, and with what words."""

from __future__ import annotations

import pytest

from weft import te
from weft.support.errors import LoweringError, OptionError, ScheduleError
from weft.tir import stmt as s
from weft.tir.visitor import post_order_stmts


class Net:
    """x -> a -> total (a reduction) -> y."""

    def __init__(self, size=(6, 8)):
        n, m = size
        self.x = te.placeholder((n, m), name="x")
        self.a = te.compute((n, m), lambda i, j: self.x[i, j] * 2.0, name="a")
        self.k = te.reduce_axis(m, "k")
        self.total = te.compute(
            (n,), lambda r: te.sum(self.a[r, self.k], axis=self.k), name="total")
        self.y = te.compute((n,), lambda i: self.total[i] + 1.0, name="y")
        self.s = te.create_schedule(self.y)


@pytest.fixture
def net() -> Net:
    return Net()


def refused(match: str):
    return pytest.raises(ScheduleError, match=match)


def test_an_axis_of_another_stage(net):
    with refused("a: axis k does not belong to this stage"):
        net.s[net.a].split(net.k, 2)


def test_an_axis_that_was_split_or_fused(net):
    i = net.a.op.axis[0]
    net.s[net.a].split(i, 2)
    with refused("axis i is no longer a loop") as caught:
        net.s[net.a].parallel(i)
    assert caught.value.help == "name one of the axes that the split or fuse returned"
    assert caught.value.notes == ("loops: i.outer, i.inner, j",)


@pytest.mark.parametrize("arguments", [{}, {"factor": 2, "nparts": 3}])
def test_split_by_neither_or_both(net, arguments):
    with refused("needs either factor or nparts"):
        net.s[net.a].split(net.a.op.axis[0], **arguments)


@pytest.mark.parametrize("factor", [0, -1, 1.5, True, "4"])
def test_split_by_something_odd(net, factor):
    with refused("must be a positive integer"):
        net.s[net.a].split(net.a.op.axis[0], factor)


def test_split_after_the_kind_was_chosen(net):
    i = net.a.op.axis[0]
    net.s[net.a].parallel(i)
    with refused("split of axis i, which is already parallel"):
        net.s[net.a].split(i, 2)


def test_split_of_a_loop_that_holds_a_stage(net):
    net.s[net.total].compute_at(net.s[net.y], net.y.op.axis[0])
    with refused("split of axis i, at which total is computed"):
        net.s[net.y].split(net.y.op.axis[0], 2)


def test_reorder_naming_an_axis_twice(net):
    i, j = net.a.op.axis
    with refused("reorder names an axis twice"):
        net.s[net.a].reorder(i, j, i)


def test_fuse_of_loops_apart(net):
    i, j = net.a.op.axis
    with refused("not nested directly in this order"):
        net.s[net.a].fuse(j, i)
    with refused("at least one axis"):
        net.s[net.a].fuse()


def test_fuse_of_a_data_and_a_reduction_axis(net):
    with refused("fuse of data axis r and reduce axis k"):
        net.s[net.total].fuse(net.total.op.axis[0], net.k)


@pytest.mark.parametrize("primitive", ["parallel", "vectorize"])
def test_reduction_axes_keep_their_order(net, primitive):
    with refused(f"{primitive} of reduction axis k: its iterations add into") as caught:
        getattr(net.s[net.total], primitive)(net.k)
    assert "rfactor" in caught.value.help


def test_vectorize_and_unroll_of_a_symbolic_extent():
    n = te.var("n")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i], name="y")
    with refused("vectorize of axis i, whose extent n is symbolic"):
        te.create_schedule(y)[y].vectorize(y.op.axis[0])
    s = te.create_schedule(y)
    s[y].unroll(y.op.axis[0])
    with refused("axis i is unrolled, but its extent n is not constant here"):
        te.lower(s, [x, y])


@pytest.mark.parametrize("kind", [s.ForKind.UNROLLED, s.ForKind.VECTORIZED])
def test_a_symbolic_axis_whose_region_is_constant(kind):
    """The rows of a stage computed at a tile are those of the tile; anywhere else, all of them."""
    n = te.var("n")
    x = te.placeholder((n, 8), name="x")
    a = te.compute((n, 8), lambda i, j: x[i, j] * 2.0, name="a")
    y = te.compute((n, 8), lambda i, j: a[i, j] + 1.0, name="y")
    sch = te.create_schedule(y)
    outer, _ = sch[y].split(y.op.axis[0], 4)
    sch[a].compute_at(sch[y], outer)
    primitive = sch[a].unroll if kind is s.ForKind.UNROLLED else sch[a].vectorize
    primitive(a.op.axis[0])
    loops = [node for node in post_order_stmts(te.lower(sch, [x, y]).body)
             if isinstance(node, s.For) and node.kind is kind]
    assert [str(loop.extent) for loop in loops] == ["4"]
    sch[a].compute_root()
    with refused(f"axis i is {kind.value}, but its extent n is not constant here"):
        te.lower(sch, [x, y])


def test_two_vectorized_axes(net):
    i, j = net.a.op.axis
    net.s[net.a].vectorize(j)
    with refused("vectorize of axis i beside j"):
        net.s[net.a].vectorize(i)


def test_two_kinds_for_one_axis(net):
    i = net.a.op.axis[0]
    net.s[net.a].unroll(i)
    with refused("already unrolled; it cannot be parallel"):
        net.s[net.a].parallel(i)


def test_compute_at_something_that_does_not_read(net):
    with refused("compute_at a, which does not read it"):
        net.s[net.total].compute_at(net.s[net.a], net.a.op.axis[0])


def test_compute_at_of_inputs_and_outputs(net):
    with refused("compute_at of an input"):
        net.s[net.x].compute_at(net.s[net.a], net.a.op.axis[0])
    both = te.create_schedule([net.total, net.y])
    with refused("compute_at of an output"):
        both[net.total].compute_at(both[net.y], net.y.op.axis[0])


def test_compute_at_a_vectorized_axis(net):
    i = net.y.op.axis[0]
    net.s[net.y].vectorize(i)
    with refused("compute_at the vectorized axis i"):
        net.s[net.total].compute_at(net.s[net.y], i)


def test_vectorize_of_a_loop_that_holds_a_stage(net):
    i = net.y.op.axis[0]
    net.s[net.total].compute_at(net.s[net.y], i)
    with refused("at which total is computed"):
        net.s[net.y].vectorize(i)


def test_computed_inside_a_vectorized_loop_by_a_later_reorder(net):
    i, k = net.total.op.axis[0], net.k
    net.s[net.total].vectorize(i)
    net.s[net.a].compute_at(net.s[net.total], k)
    with refused("inside the vectorized axis r of total"):
        te.lower(net.s, [net.x, net.y])
    net.s[net.total].reorder(k, i)
    te.lower(net.s, [net.x, net.y])


def test_a_reader_outside_the_loop(run, random):
    x = te.placeholder((4,), name="x")
    a = te.compute((4,), lambda i: x[i] + 1.0, name="a")
    b = te.compute((4,), lambda i: a[i] * 2.0, name="b")
    y = te.compute((4,), lambda i: a[i] + b[i], name="y")
    sch = te.create_schedule(y)
    sch[a].compute_at(sch[y], y.op.axis[0])
    with refused("a is computed at loop i of y, but b, which reads it, is outside"):
        te.lower(sch, [x, y])
    sch[b].compute_at(sch[y], y.op.axis[0])
    v = random(4)
    assert run(sch, [x, y], [v])[0] == pytest.approx((v + 1) * 3, rel=1e-5)


def test_compute_at_through_an_inlined_stage(run, random):
    net = Net()
    out = te.compute((6,), lambda i: net.y[i] * 2.0, name="out")
    sch = te.create_schedule(out)
    sch[net.y].compute_inline()
    sch[net.total].compute_at(sch[out], out.op.axis[0])
    assert "total = allocate(float32[1])" in str(te.lower(sch, [net.x, out]))
    v = random(6, 8)
    assert run(sch, [net.x, out], [v])[0] == pytest.approx(
        2 * (2 * v.sum(1) + 1), rel=1e-4)


def test_inlining_what_has_loops_or_memory_of_its_own(net):
    with refused("compute_inline of a reduction"):
        net.s[net.total].compute_inline()
    with refused("compute_inline of an output"):
        net.s[net.y].compute_inline()
    with refused("does not apply to a placeholder"):
        net.s[net.x].compute_inline()
    net.s[net.a].compute_at(net.s[net.total], net.k)
    b = te.compute((6, 8), lambda i, j: net.a[i, j], name="b")
    c = te.compute((6, 8), lambda i, j: b[i, j], name="c")
    sch = te.create_schedule(c)
    sch[net.a].compute_at(sch[b], b.op.axis[0])
    with refused("while a is computed at one of its loops"):
        sch[b].compute_inline()


def test_inlining_into_an_extern_body(net):
    (z,) = te.extern([(6, 8)], [net.a], lambda i, o: s.seq([]), ["float32"], name="z")
    with refused("compute_inline into z, whose body reads memory"):
        te.create_schedule(z)[net.a].compute_inline()


def test_scopes(net):
    with refused("unknown scope"):
        net.s[net.a].set_scope("warp")
    with refused("of an output, which is the caller's memory") as caught:
        net.s[net.y].set_scope("local")
    assert "cache_write" in caught.value.help


def test_bind(net):
    i, j = net.a.op.axis
    with refused("unknown index 'threadIdx.w'"):
        net.s[net.a].bind(i, "threadIdx.w")
    net.s[net.a].bind(i, "threadIdx.x")
    with refused("threadIdx.x, to which i is bound"):
        net.s[net.a].bind(j, "threadIdx.x")


def test_caches(net):
    net.s[net.a].split(net.a.op.axis[0], 2)
    with refused("cache_write of a stage whose loops were already changed"):
        net.s.cache_write(net.a, "local")
    with refused("cache_read for y, which does not read it"):
        net.s.cache_read(net.a, "local", [net.y])
    with refused("unknown scope"):
        net.s.cache_write(net.total, "nowhere")


def test_rfactor(net):
    with refused("not a reduction axis"):
        net.s.rfactor(net.total, net.total.op.axis[0])
    with refused("the result has only"):
        net.s.rfactor(net.total, net.k, factor_axis=2)
    net.s[net.total].unroll(net.k)
    with refused("rfactor of axis k, which is already unrolled"):
        net.s.rfactor(net.total, net.k)


def test_tensors_of_another_program(net):
    with refused("is not part of this schedule"):
        net.s[Net().a]
    with refused("at least one output"):
        te.create_schedule([])
    with refused("output x is an input"):
        te.create_schedule(net.x)


def test_arguments_of_lower(net):
    for args, message in [
        ([net.x], "output y is missing"),
        ([net.y], "input x is missing"),
        ([net.y, net.x], "inputs and then the outputs"),
        ([net.x, net.x, net.y], "duplicate argument"),
        ([net.x, net.a, net.y], "argument a is neither an input nor an output"),
    ]:
        with pytest.raises(LoweringError, match=message):
            te.lower(net.s, args)


def test_tensor_expressions(net):
    with pytest.raises(LoweringError, match="has 2 axes and was indexed with 1"):
        net.x[0]
    with pytest.raises(LoweringError, match="an index must be an integer"):
        net.x[0.5, 0]
    with pytest.raises(LoweringError, match="must take one index per axis"):
        te.compute((3, 4), lambda i: net.x[i, 0])
    with pytest.raises(LoweringError, match="not a reduction axis"):
        te.compute((3,), lambda i: te.sum(net.x[i, 0], axis=net.a.op.axis[0]))
    with pytest.raises(LoweringError, match="a reduction inside an expression"):
        te.compute((3,), lambda i: te.sum(net.x[i, net.k], axis=net.k) + 1.0)
    with pytest.raises(LoweringError, match="reduces tuples of 2"):
        te.argmax(net.x[0, 0], axis=net.k)
    with pytest.raises(LoweringError, match="must share one reduction"):
        te.compute((3,), lambda i: (te.sum(net.x[i, net.k], axis=net.k), net.x[i, 0]))
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(net.x)
    with pytest.raises(OptionError, match="unknown dtype"):
        te.placeholder((1,), "float33")
