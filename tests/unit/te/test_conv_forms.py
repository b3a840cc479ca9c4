"""Convolutions over blocked channels: register tiles, tails, and where the padding is computed."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.te.schedule import Schedule
from weft.tir import stmt as s
from weft.tir.visitor import post_order_stmts

B = 4  # channels in a block; the forms are the same for 16


def conv_relu(height: int, width: int, in_chunks: int, out_chunks: int):
    data = te.placeholder((1, in_chunks, height, width, B), name="data")
    weight = te.placeholder((out_chunks, in_chunks, 3, 3, B, B), name="weight")
    bias = te.placeholder((out_chunks, B), name="bias")
    residual = te.placeholder((1, out_chunks, height, width, B), name="residual")
    pad = te.compute(
        (1, in_chunks, height + 2, width + 2, B),
        lambda n, c, h, w, b: te.if_then_else(
            te.all_of(h >= 1, h < height + 1, w >= 1, w < width + 1),
            data[n, c, h - 1, w - 1, b], 0.0),
        name="pad",
    )
    ic = te.reduce_axis(in_chunks * B, "ic")
    kh, kw = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    conv = te.compute(
        residual.shape,
        lambda n, c, h, w, b: te.sum(
            pad[n, ic // B, h + kh, w + kw, ic % B] * weight[c, ic // B, kh, kw, ic % B, b],
            axis=[ic, kh, kw]),
        name="conv",
    )
    out = te.compute(
        residual.shape,
        lambda n, c, h, w, b: te.maximum(
            conv[n, c, h, w, b] + bias[c, b] + residual[n, c, h, w, b], 0.0),
        name="out",
    )
    return [data, weight, bias, residual, out], pad, conv


def schedule_tiles(out, pad, conv, tile: int, chunks: int, pad_at: str) -> Schedule:
    sch = te.create_schedule(out)
    n, c, h, w, b = out.op.axis
    wo, wi = sch[out].split(w, tile)
    co, ci = sch[out].split(c, chunks)
    sch[out].reorder(n, co, h, wo, ci, wi, b)
    row = sch[out].fuse(n, co, h)
    sch[out].parallel(row)
    sch[out].unroll(ci)
    sch[out].unroll(wi)
    sch[out].vectorize(b)
    sch[conv].compute_at(sch[out], wo)
    sch[conv].set_scope("local")
    _, cc, _, cw, cb = conv.op.axis
    ic, kh, kw = conv.op.reduce_axis
    ico, ici = sch[conv].split(ic, B)
    sch[conv].reorder(ico, kh, kw, ici, cc, cw, cb)
    sch[conv].unroll(cc)
    sch[conv].unroll(cw)
    sch[conv].vectorize(cb)
    if pad_at == "row":
        sch[pad].compute_at(sch[out], row)
        sch[pad].vectorize(pad.op.axis[4])
    elif pad_at == "inline":
        sch[pad].compute_inline()
    else:
        sch[pad].parallel(sch[pad].fuse(*pad.op.axis[:3]))
        sch[pad].vectorize(pad.op.axis[4])
    return sch


def reference(data, weight, bias, residual):
    _, chunks, height, width, _ = data.shape
    padded = np.zeros((1, chunks, height + 2, width + 2, B), np.float32)
    padded[:, :, 1:-1, 1:-1] = data
    out = residual + bias[None, :, None, None, :]
    for kh in range(3):
        for kw in range(3):
            window = padded[:, :, kh : kh + height, kw : kw + width]
            out = out + np.einsum("nihwk,oikb->nohwb",
                                  window, weight[:, :, kh, kw])
    return np.maximum(out, 0)


def inputs_of(random, args):
    return [random(*t.static_shape) for t in args[:-1]]


@pytest.mark.parametrize("pad_at", ["root", "row", "inline"])
@pytest.mark.parametrize(("width", "chunks"), [(8, 1), (7, 1), (8, 2), (7, 2)])
def test_register_tiled_convolution(run, random, width, chunks, pad_at):
    args, pad, conv = conv_relu(3, width, 2, 4)
    sch = schedule_tiles(args[-1], pad, conv, 4, chunks, pad_at)
    inputs = inputs_of(random, args)
    (out,) = run(sch, args, inputs)
    np.testing.assert_allclose(out, reference(*inputs), rtol=1e-4, atol=1e-5)


def allocations(func):
    return {n.buffer.name: n.buffer for n in post_order_stmts(func.body)
            if isinstance(n, s.Allocate)}


@pytest.mark.parametrize("width", [8, 7])
def test_the_tile_is_as_large_as_the_loops_that_fill_it(width):
    args, pad, conv = conv_relu(5, width, 2, 4)
    func = te.lower(schedule_tiles(args[-1], pad, conv, 4, 2, "row"), args)
    buffers = allocations(func)
    assert buffers["conv"].static_shape == (1, 2, 1, 4, B)
    assert buffers["conv"].scope == "local"
    assert buffers["pad"].static_shape == (1, 2, 3, width + 2, B)


def test_indices_into_the_tile_are_its_loop_variables_alone():
    args, pad, conv = conv_relu(5, 7, 2, 4)
    func = te.lower(schedule_tiles(args[-1], pad, conv, 4, 2, "row"), args)
    tile = allocations(func)["conv"]
    stores = [n for n in post_order_stmts(func.body)
              if isinstance(n, s.BufferStore) and n.buffer is tile]
    for store in stores:
        assert [str(i).split("_")[0] for i in store.indices] in (
            ["0", "c.init", "0", "w.init", "b.init"], ["0", "c", "0", "w", "b"])
    assert len(stores) == 2


def test_only_the_width_is_guarded_and_only_where_it_has_a_tail():
    for width, count in ((8, 0), (7, 3)):
        args, pad, conv = conv_relu(5, width, 2, 4)
        func = te.lower(schedule_tiles(args[-1], pad, conv, 4, 2, "row"), args)
        guards = [n for n in post_order_stmts(func.body) if isinstance(n, s.IfThenElse)]
        assert len(guards) == count
        assert all("likely" in str(g.condition) for g in guards)


def test_depthwise_convolution_with_stride(run, random):
    data = te.placeholder((1, 2, 9, 9, B), name="data")
    weight = te.placeholder((2, 1, 3, 3, 1, B), name="weight")
    kh, kw = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    conv = te.compute(
        (1, 2, 4, 4, B),
        lambda n, c, h, w, b: te.sum(
            data[n, c, h * 2 + kh, w * 2 + kw, b] * weight[c, 0, kh, kw, 0, b], axis=[kh, kw]),
        name="conv",
    )
    out = te.compute(conv.shape, lambda *i: te.minimum(te.maximum(conv[i], 0.0), 6.0), name="out")
    sch = te.create_schedule(out)
    n, c, h, w, b = out.op.axis
    wo, wi = sch[out].split(w, 3)
    sch[out].parallel(sch[out].fuse(n, c, h))
    sch[out].unroll(wi)
    sch[out].vectorize(b)
    sch[conv].compute_at(sch[out], wo)
    sch[conv].set_scope("local")
    sch[conv].reorder(kh, kw, conv.op.axis[3], conv.op.axis[4])
    sch[conv].unroll(conv.op.axis[3])
    sch[conv].vectorize(conv.op.axis[4])
    x, k = random(1, 2, 9, 9, B), random(2, 1, 3, 3, 1, B)
    want = sum(
        x[:, :, i : i + 7 : 2, j : j + 7 : 2] * k[None, :, 0, None, i : i + 1, j, 0]
        for i in range(3) for j in range(3)
    )
    (got,) = run(sch, [data, weight, out], [x, k])
    np.testing.assert_allclose(got, np.clip(want, 0, 6), rtol=1e-5)


def test_max_pool_with_minus_infinity_around(run, random):
    data = te.placeholder((1, 2, 7, 7, B), name="data")
    pad = te.compute(
        (1, 2, 9, 9, B),
        lambda n, c, h, w, b: te.if_then_else(
            te.all_of(h >= 1, h < 8, w >= 1, w < 8), data[n, c, h - 1, w - 1, b], -np.inf),
        name="pad")
    kh, kw = te.reduce_axis(3, "kh"), te.reduce_axis(3, "kw")
    pool = te.compute(
        (1, 2, 4, 4, B),
        lambda n, c, h, w, b: te.max(pad[n, c, h * 2 + kh, w * 2 + kw, b], axis=[kh, kw]),
        name="pool")
    sch = te.create_schedule(pool)
    sch[pad].compute_inline()
    sch[pool].parallel(sch[pool].fuse(*pool.op.axis[:3]))
    sch[pool].vectorize(pool.op.axis[4])
    x = random(1, 2, 7, 7, B)
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1), (0, 0)], constant_values=-np.inf)
    want = np.max([padded[:, :, i : i + 7 : 2, j : j + 7 : 2] for i in range(3)
                   for j in range(3)], axis=0)
    np.testing.assert_array_equal(run(sch, [data, pool], [x])[0], want)
