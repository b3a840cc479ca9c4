"""ZeRO and fully sharded modules: the results of one rank, with a part of the memory."""

import errno

import numpy as np
import pytest

import weft.checkpoints.files
from tests.unit.distributed import training
from weft import nn, optim
from weft.distributed import (
    DataParallel,
    FullySharded,
    FullyShardedState,
    ZeroOptimizer,
    load_checkpoint,
    run_local,
    save_checkpoint,
)
from weft.support.errors import CheckpointError, InvalidInputError, OptionError


def adam(parameters):
    return optim.AdamW(parameters, lr=0.01)


def mlp():
    weft.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(),
                         nn.Linear(16, 3))


def steps(world, model, optimizer, numbers):
    for number in numbers:
        rng = np.random.default_rng(number)
        x = training.share(world, rng.standard_normal((8, 6)).astype(np.float32))
        y = training.share(world, rng.integers(0, 3, 8))
        optimizer.zero_grad()
        training.loss_of(model, x, y).backward()
        optimizer.step()


def data_parallel(world, *, stage, numbers=range(3), folder=None, save=None):
    model = mlp()
    parallel = DataParallel(model, bucket_bytes=600)
    optimizer = adam(parallel.parameters()) if stage == 0 else ZeroOptimizer(
        parallel, adam, stage=stage)
    if folder is not None:
        load_checkpoint(folder, model=model, optimizer=optimizer)
    steps(world, parallel, optimizer, numbers)
    if save is not None:
        save_checkpoint(save, 3, model=model, optimizer=optimizer)
    kept = 0 if stage == 0 else optimizer.state_bytes()
    return training.values(model), kept


def equal(found, expected, **tolerance):
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[name], err_msg=name, **tolerance)


def test_zero_has_the_results_of_data_parallel_with_less_memory():
    (expected, _), *_ = run_local(2, lambda w: data_parallel(w, stage=0), deterministic=True)
    one, two = (run_local(2, lambda w, s=s: data_parallel(w, stage=s), deterministic=True)
                for s in (1, 2))
    for values, _ in (*one, *two):
        equal(values, expected, rtol=1e-6, atol=1e-7)
    size = sum(v.nbytes for v in expected.values())
    assert sum(kept for _, kept in two) < 3.2 * size
    assert max(kept for _, kept in two) < 0.52 * 3 * size  # parts are equal, though layers are not
    assert max(kept for _, kept in two) < max(kept for _, kept in one)


def test_another_number_of_ranks_goes_on(tmp_path):
    run_local(2, lambda w: data_parallel(w, stage=2, save=tmp_path))
    (expected, _), *_ = run_local(2, lambda w: data_parallel(w, stage=0, numbers=range(6)))
    for count in (1, 3):
        for values, _ in run_local(count, lambda w: data_parallel(
                w, stage=2, numbers=range(3, 6) if w.size < 3 else (), folder=tmp_path)):
            if count < 3:
                equal(values, expected, rtol=2e-4, atol=1e-5)


def fully_sharded(world, *, numbers=range(3), folder=None, save=None):
    model = mlp()
    for i in (0, 2):
        model[i] = FullySharded(model[i])
    optimizer = adam(model.parameters())
    state = FullyShardedState(model, optimizer)
    if folder is not None:
        load_checkpoint(folder, state=state)
    for number in numbers:
        rng = np.random.default_rng(number)
        x = training.share(world, rng.standard_normal((8, 6)).astype(np.float32))
        y = training.share(world, rng.integers(0, 3, 8))
        optimizer.zero_grad()
        training.loss_of(model, x, y).backward()
        for p in model[4].parameters():  # of which all ranks have the whole
            p.grad = weft.tensor(world.all_reduce(p.grad.numpy().copy()) / np.float32(world.size))
        optimizer.step()
    if save is not None:
        save_checkpoint(save, 3, state=state)
    held = [sum(p.nbytes for p in model[i].tensors) for i in (0, 2)]
    for i in (0, 2):
        model[i].gather()
    values = {f"{i}.{n}": p.detach().numpy().copy() for i in (0, 2)
              for n, p in zip(model[i].names, model[i].tensors, strict=True)}
    return values, held, [model[i].shard.nbytes for i in (0, 2)]


def test_fully_sharded_modules():
    (expected, _), *_ = run_local(2, lambda w: data_parallel(w, stage=0))
    for values, held, shards in run_local(2, fully_sharded):
        equal(values, expected, rtol=1e-5, atol=1e-6)
        assert held == [0, 0]
        assert shards == [4 * 56, 4 * 136]


def test_fully_sharded_checkpoints(tmp_path):
    run_local(4, lambda w: fully_sharded(w, save=tmp_path))
    (expected, _), *_ = run_local(2, lambda w: data_parallel(w, stage=0, numbers=range(6)))
    for values, _, _ in run_local(2, lambda w: fully_sharded(
            w, numbers=range(3, 6), folder=tmp_path)):
        equal(values, expected, rtol=2e-4, atol=1e-5)


def test_a_full_disk_leaves_the_former_checkpoint(tmp_path, monkeypatch):
    def work(world, step):
        return save_checkpoint(tmp_path, step, x=np.full(3, step), own=Own(world))

    class Own:
        is_sharded = True

        def __init__(self, world):
            self.world = world

        def state_dict(self):
            return {str(self.world.rank): np.ones(2)}

    run_local(2, work, 1)
    write = weft.checkpoints.files._write

    def full(path, *args):
        if path.name == "rank-1.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *args)

    monkeypatch.setattr(weft.checkpoints.files, "_write", full)
    with pytest.raises(weft.support.errors.DistributedError) as caught:
        run_local(2, work, 2)
    cause = caught.value.__cause__
    assert isinstance(cause, CheckpointError)
    assert "rank 1 cannot write" in str(cause)
    assert "No space left" in str(cause)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoint-00000001"]
    found = load_checkpoint(tmp_path).state
    np.testing.assert_array_equal(found["x"], [1, 1, 1])
    assert sorted(found["own"]) == ["0", "1"]


def test_bad_input(tmp_path):
    with pytest.raises(OptionError, match="unknown stage"):
        ZeroOptimizer(DataParallel(nn.Linear(2, 2)), adam, stage=3)
    with pytest.raises(InvalidInputError, match="cannot be fully sharded"):
        FullySharded(nn.BatchNorm1d(2))
    with pytest.raises(CheckpointError, match="without checkpoints"):
        load_checkpoint(tmp_path)
