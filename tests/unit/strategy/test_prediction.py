"""Predictions of lowered kernels: what they execute, which bytes they move, and how long it takes.

All are for the shipped table of a CPU, so that they are the same on every host.
"""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import WIDE_CPU, primitive
from weft import op, tir
from weft.codegen.cost_model import Prediction
from weft.ir import float32, int32, var
from weft.strategy import lower_function
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.prediction.affine import Digit, Forms, divisors_of
from weft.strategy.cpu.prediction.core import core_cycles, products_of
from weft.strategy.cpu.prediction.instructions import Access, Counter, Instructions
from weft.strategy.cpu.prediction.predict import lost_pages, predict
from weft.strategy.cpu.prediction.ranges import Samples, UnknownValueError, evaluate
from weft.strategy.cpu.prediction.spills import spilled
from weft.strategy.cpu.prediction.traffic import grouped, steps_of
from weft.strategy.cpu.prediction.tree import Block, Loop, tree_of
from weft.target import CpuTarget
from weft.tir.buffer import Buffer
from weft.tir.stmt import Evaluate, LetStmt

MODEL = machine_model(WIDE_CPU)


def _dense(m: int, n: int, k: int):
    x, weight = var("x", (m, k)), var("w", (n, k))
    return primitive([x, weight], op.nn.dense(x, weight))


def _lowered(function):
    return lower_function(function, WIDE_CPU)


def _seconds_and_parts(function):
    found = predict(_lowered(function).func, WIDE_CPU)
    assert found is not None
    return found.seconds, found.spent


def test_a_gemm_executes_its_multiply_adds_and_takes_about_as_long():
    function = _dense(256, 256, 256)
    lowered = _lowered(function)
    roots, _ = tree_of(lowered.func, MODEL)
    assert products_of(roots) == pytest.approx(256 ** 3, rel=0.01)
    peak = MODEL.seconds(256 ** 3 / (16 * MODEL.fma_per_cycle))
    assert peak < lowered.seconds < 1.3 * peak
    assert lowered.spent.startswith("multiply-adds")


@pytest.mark.parametrize(("flops", "text"), [
    (160, "multiply-adds 72 %, remainders 18 %, loads 5 %"), (200, "multiply-adds 90 %, loads 5 %"),
    (20, "multiply-adds 90 %, loads 5 %"), ("n", "multiply-adds 90 %, loads 5 %")])
def test_multiply_adds_that_nobody_asked_for_are_remainders(flops, text):
    found = Prediction(1.0, {"loads": 0.05, "multiply-adds": 0.9, "packing": 0.01}, 100)
    assert found.text(flops) == text


@pytest.mark.parametrize(("elements", "level"), [
    (1 << 10, ""), (1 << 15, "bytes from L2"), (1 << 20, "bytes from L3"),
    (1 << 25, "bytes from memory")])
def test_data_come_from_the_level_that_holds_them(elements, level):
    x, y = var("x", (elements,)), var("y", (elements,))
    _, spent = _seconds_and_parts(primitive([x, y], op.add(x, y)))
    levels = [name for name in spent if name.startswith("bytes")]
    assert (levels[-1:] or [""]) == [level]


def test_a_stream_from_memory_takes_as_long_as_its_bytes():
    x, y = var("x", (1 << 25,)), var("y", (1 << 25,))
    seconds, _ = _seconds_and_parts(primitive([x, y], op.add(x, y)))
    memory = MODEL.machine.memory
    cycles = (1 << 27) * (2 / memory.load_bytes_per_cycle + 1 / memory.store_bytes_per_cycle)
    assert seconds == pytest.approx(MODEL.seconds(cycles), rel=0.25)


def test_a_maximum_of_rows_waits_for_the_one_before():
    x = var("x", (128, 768))
    _, spent = _seconds_and_parts(primitive([x], op.max(x, axis=(1,))))
    assert max(spent, key=spent.get) == "sums that wait"


def test_more_work_takes_longer():
    times = [_lowered(_dense(m, 512, 512)).seconds for m in (1, 8, 64, 512)]
    assert times == sorted(times)


def test_symbolic_kernels_keep_the_estimate_of_their_implementation():
    x = var("x", ("n", 64))
    lowered = _lowered(primitive([x], op.nn.relu(x)))
    assert predict(lowered.func, WIDE_CPU) is None
    assert lowered.spent == ""


def test_foreign_code_is_not_predicted():
    call = tir.call("handle", "call_extern", tir.StringImm("foreign"))
    assert predict(tir.PrimFunc("kernel", (), Evaluate(call)), WIDE_CPU) is None


def test_deep_kernels_compile_without_a_prediction():
    x = y = var("x", (64,))
    for _ in range(400):
        y = op.add(op.multiply(y, x), x)
    assert _lowered(primitive([x], y)).spent == ""


def test_a_division_by_zero_is_unknown():
    n = tir.Var("n")
    with pytest.raises(UnknownValueError):
        evaluate(tir.const(1) // n, {n: 0})


def test_quotients_and_remainders_of_a_fused_loop_are_digits():
    i = tir.Var("i")
    index = i // 8 * 100 + i % 8 * 3
    forms = Forms()
    outer, inner = forms.define(i, 40, divisors_of([index])[i])
    assert (outer.extent, inner.extent) == (5, 8)
    assert dict(forms.of(index).terms) == {outer: 100, inner: 3}


def test_a_variable_of_two_loops_has_the_digits_of_the_one_around():
    i, forms = tir.Var("i"), Forms()
    for extent in (4, 9):
        (digit,) = forms.define(i, extent, ())
        assert dict(forms.of(i * 2).terms) == {digit: 2}


def test_the_mean_of_a_dependent_extent_counts_its_iterations():
    i, j = tir.Var("i"), tir.Var("j")
    samples = Samples().within(i, tir.const(0), tir.const(7))
    extent = tir.minimum(8 - i, 3) - tir.maximum(1 - i, 0)
    assert samples.mean(extent) == pytest.approx(19 / 7)
    blocks = samples.within(j, tir.const(0), (extent + 1) // 2)
    left = tir.minimum(2, extent - j * 2)
    assert samples.mean((extent + 1) // 2) * blocks.mean(left) == pytest.approx(19 / 7)


@pytest.mark.parametrize(("offsets", "steps"), [
    ([4.0], []), ([0.0, 64.0, 128.0], [(64.0, 3)]),
    ([0.0, 64.0, 1000.0, 1064.0], [(64.0, 2.0), (1000.0, 2)])])
def test_constant_offsets_are_loops(offsets, steps):
    assert steps_of(offsets) == steps


def test_the_vectors_of_a_row_and_of_its_remainder_are_one_run():
    source = Buffer("source", (tir.const(1024),), float32)
    rows = [Access(source, run, row + start, (), is_store=False)
            for row in (0.0, 200.0) for start, run in ((0.0, 64.0), (64.0, 32.0), (96.0, 28.0))]
    assert [(group.run, group.own) for group in grouped(rows)] == [(124.0, [(200.0, 2)])]


def test_a_core_with_half_as_wide_store_ports_stores_halves_of_vectors_as_fast():
    def cycles(target, work):
        return sum(core_cycles([Block(work, ())], machine_model(target)).values())

    whole, halves = Instructions(store=8), Instructions(store=8, narrow_store=8)
    zen4, skylake = CpuTarget.of("llvm -mcpu=znver4"), CpuTarget.of("llvm -mcpu=skylake")
    assert cycles(zen4, halves) == cycles(zen4, whole) / 2
    assert cycles(skylake, halves) == cycles(skylake, whole)


def _loop(extent, *body):
    return Loop(Digit("i", extent), body)


def test_short_sums_of_an_outer_loop_wait_together():
    acc = Buffer("acc", (tir.const(16),), float32, "local")
    products = Block(Instructions(fma=4, chain=3, carried=frozenset([acc])), ())
    zeros = Block(Instructions(fresh=frozenset([acc])), ())
    apart = core_cycles([_loop(100, zeros, _loop(4, products))], MODEL)
    carried = core_cycles([_loop(100, _loop(4, products))], MODEL)
    assert carried["sums that wait"] == pytest.approx(100 * 4 * 3 * MODEL.fma_latency)
    assert apart["multiply-adds"] == pytest.approx(100 * 4 * 4 / MODEL.fma_per_cycle)
    assert "sums that wait" not in {kind for kind, cycles in apart.items() if cycles}


def test_long_sums_do_not_wait_together():
    acc = Buffer("acc", (tir.const(16),), float32, "local")
    products = Block(Instructions(fma=4, chain=3, carried=frozenset([acc])), ())
    zeros = Block(Instructions(fresh=frozenset([acc])), ())
    spent = core_cycles([_loop(10, zeros, _loop(1000, products))], MODEL)
    assert spent["sums that wait"] > 0.8 * 10 * 1000 * 3 * MODEL.fma_latency


def _work(*statements):
    counter = Counter(MODEL.vector_bytes, Forms())
    for statement in statements:
        counter.visit(statement)
    return counter.finish()


def test_elements_at_a_short_stride_are_vectors_and_shuffles():
    source = Buffer("source", (tir.const(256),), float32)
    result = Buffer("result", (tir.const(256),), float32)

    def column(n):
        value = tir.BufferLoad(source, (tir.Ramp(tir.const(n), tir.const(3), 16),))
        return tir.BufferStore(result, value, (tir.Ramp(tir.const(16 * n), tir.const(1), 16),))

    one, two = _work(column(0)), _work(column(0), column(16))
    assert (one.load, one.shuffle, one.gathered) == (3, 2, 0)
    assert two.load == 5, "the second starts in a vector of the first"


@pytest.mark.parametrize(("entries", "permutes"), [(16, 1), (32, 1), (64, 2)])
def test_a_permute_reads_a_table_of_two_registers(entries, permutes):
    table = [tir.const(float(n), "float32x16") for n in range(entries)]
    index = tir.Var("index", int32.vector(16))
    result = Buffer("result", (tir.const(16),), float32)
    value = tir.call("float32x16", "table_lookup", index, *table)
    stored = tir.BufferStore(result, value, (tir.Ramp(tir.const(0), tir.const(1), 16),))
    assert _work(stored).shuffle == permutes


def test_pages_meet_in_l2_before_it_is_full():
    lost = lost_pages(MODEL)
    shares = [lost(MODEL.l2_bytes * part) for part in (0.25, 0.7, 1.0, 2.0, 8.0)]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert 0.01 < shares[1] < 0.2
    assert 0.4 < shares[2] < 0.6
    assert shares[3] > 0.95
    assert shares[4] == 1


def test_elements_that_are_far_apart_are_lines_and_not_all_between_them():
    x = var("x", (1, 64, 8, 28, 28))
    function = primitive([x], op.layout_transform(x, src_layout="NCDHW", dst_layout="NCDHW16c"))
    assert _lowered(function).seconds < 1e-3


@pytest.mark.parametrize(("values", "stores"), [(10, 0), (32, 0), (40, 8)])
def test_values_that_registers_cannot_hold_are_stored_and_loaded(values, stores):
    memory = Buffer("memory", (tir.const(1024),), float32)
    places = [(tir.Ramp(tir.const(16 * n), tir.const(1), 16),) for n in range(values)]
    lets = [LetStmt(tir.Var(f"v{n}", float32.vector(16)), tir.BufferLoad(memory, at),
                    Evaluate(tir.const(0)))
            for n, at in enumerate(places)]
    found = spilled([*lets, *(tir.BufferStore(memory, let.var, at)
                              for let, at in zip(lets, places, strict=True))], 32)
    assert found == (stores, stores)
