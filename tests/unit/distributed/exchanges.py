"""What every back end must do: ``check(communicator)`` compares with NumPy on all ranks."""

import ml_dtypes
import numpy as np

DTYPES = (np.float32, np.float64, np.int64, np.uint8, np.float16, ml_dtypes.bfloat16)


def of_rank(rank, shape, dtype):
    return (np.random.default_rng(rank).integers(0, 9, shape) / 2).astype(dtype)


def check(world):
    n, me = world.size, world.rank
    for dtype in DTYPES:
        each = [of_rank(r, (2 * n, 3), dtype) for r in range(n)]
        total = sum(x.astype(np.float64) for x in each).astype(dtype)
        mine = each[me].copy()
        assert world.all_reduce(mine) is mine
        assert mine.tobytes() == total.tobytes()
        largest = world.all_reduce(each[me].copy(), "max")
        np.testing.assert_array_equal(largest, np.maximum.reduce(each))
        np.testing.assert_array_equal(world.all_gather(each[me], axis=1), np.concatenate(each, 1))
        np.testing.assert_array_equal(world.reduce_scatter(each[me]), total[2 * me:2 * me + 2])
        swapped = np.concatenate([x[2 * me:2 * me + 2] for x in each], 1)
        np.testing.assert_array_equal(world.all_to_all(each[me], 0, 1), swapped)
        root = n - 1
        np.testing.assert_array_equal(world.broadcast(each[me].copy(), root), each[root])
        shifted = world.permute(each[me], [(i, i + 1) for i in range(n - 1)])
        np.testing.assert_array_equal(shifted, each[me - 1] if me else np.zeros_like(shifted))
    strided = np.zeros((3, 4), np.float32).T
    strided[...] = me
    world.all_reduce(strided)
    assert (strided == n * (n - 1) / 2).all()
    empty = np.zeros((0, 3), np.float32)
    assert world.all_gather(empty).shape == (0, 3)
    _check_messages(world)
    _check_groups(world)
    world.barrier()


def _check_messages(world):
    """Messages of one tag keep their order; those of others overtake them."""
    n, me = world.size, world.rank
    ahead, behind = (me + 1) % n, (me - 1) % n
    sent = [world.start_send(np.full(3, 10 * me + i), ahead, tag=i % 2) for i in range(6)]
    for i in (1, 3, 5, 0, 2, 4):
        assert (world.receive(np.zeros(3, int), behind, tag=i % 2) == 10 * behind + i).all()
    for pending in sent:
        pending.wait()
    started = [world.start_all_reduce(np.full(5, i, np.float32)) for i in range(8)]
    assert [p.wait()[0] for p in reversed(started)] == [n * i for i in range(7, -1, -1)]


def _check_groups(world):
    group = world.split(world.rank % 2)
    assert group.size == len(range(world.rank % 2, world.size, 2))
    assert group.rank == world.rank // 2
    same = world.all_gather(np.array([world.rank]))[world.rank % 2::2]
    np.testing.assert_array_equal(group.all_gather(np.array([world.rank])), same)
    inner = group.split(str(group.rank))
    assert inner.all_reduce(np.ones(3))[0] == 1
