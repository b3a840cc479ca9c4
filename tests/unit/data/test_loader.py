"""Batches: the same for every number of workers, resumable, and released whatever happens."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft.data import (
    ArrayDataset,
    BatchSampler,
    Compose,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomCrop,
    RandomHorizontalFlip,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
    sample_generator,
    workers,
)
from weft.support.errors import DataError, OptionError

ROOT = Path(__file__).parents[3]


class Noisy(Dataset):
    """Samples with random parts; some indices raise, or end the process."""

    def __init__(self, size=11, bad=(), deadly=(), slow=()):
        self.size, self.bad, self.deadly, self.slow = size, bad, deadly, slow

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError(f"sample {index} is bad")
        if index in self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        if index in self.slow:
            time.sleep(60)
        return {"index": index, "noise": sample_generator().random(3)}

    def __len__(self):
        return self.size


class Counting(IterableDataset):
    def __iter__(self):
        return iter(range(10))

    def __len__(self):
        return 10


def equal(a, b):
    assert type(a) is type(b)
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        a, b = list(a.values()), list(b.values())
    if isinstance(a, tuple | list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            equal(x, y)
    else:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@given(size=st.integers(0, 20), batch=st.integers(1, 6), drop=st.booleans(), seed=st.integers(0))
@settings(max_examples=40)
def test_an_epoch_has_each_sample_once(size, batch, drop, seed):
    data = np.arange(size)
    loader = DataLoader(ArrayDataset(data), batch, shuffle=True, drop_last=drop, seed=seed)
    batches = list(loader)
    seen = np.concatenate([*batches, []])
    assert len(batches) == len(loader)
    assert len(set(seen)) == len(seen) == (size - size % batch if drop else size)
    equal(batches, list(DataLoader(ArrayDataset(data), batch, shuffle=True, drop_last=drop,
                                   seed=seed)))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = [tuple(np.concatenate(list(loader)))
              for loader in (DataLoader(ArrayDataset(np.arange(50)), 8, shuffle=True, seed=seed)
                             for seed in (0, 1)) for _ in range(3)]
    assert len(set(orders)) == 6


@given(epochs=st.integers(0, 2), batches=st.integers(0, 6))
@settings(max_examples=20)
def test_a_loader_continues_in_the_middle_of_an_epoch(epochs, batches):
    def rest(loader):
        return [batch for _ in range(3) for batch in loader]

    first, second = (DataLoader(Noisy(), 2, shuffle=True, seed=5) for _ in range(2))
    for _ in range(epochs):
        list(first)
    running = iter(first)
    for _ in range(batches):
        next(running)
    state = first.state_dict()
    second.load_state_dict(state)
    expected = [*running]
    equal(rest(second), expected + [b for _ in range(2) for b in first])


def test_a_state_of_another_loader_is_refused():
    loader = DataLoader(Noisy(), 2, shuffle=True)
    state = loader.state_dict()
    with pytest.raises(DataError, match="another batch_size"):
        DataLoader(Noisy(), 3, shuffle=True).load_state_dict(state)
    with pytest.raises(DataError, match="another samples"):
        DataLoader(Noisy(5), 2, shuffle=True).load_state_dict(state)
    with pytest.raises(DataError, match="incomplete"):
        loader.load_state_dict({"epoch": 1})
    with pytest.raises(DataError, match="unknown format"):
        loader.load_state_dict({**state, "format": 2})


def test_workers_and_threads_give_the_same_batches():
    expected = list(DataLoader(Noisy(), 3, shuffle=True, seed=9))
    equal(list(DataLoader(Noisy(), 3, shuffle=True, seed=9, num_workers=2)), expected)
    equal(list(DataLoader(Noisy(), 3, shuffle=True, seed=9, prefetch_factor=2)), expected)
    assert threading.active_count() == 1 or "weft data prefetch" not in {
        t.name for t in threading.enumerate()}


def test_a_worker_that_raises_names_sample_and_traceback():
    with pytest.raises(DataError) as caught:
        list(DataLoader(Noisy(bad={7}), 3, num_workers=1))
    text = str(caught.value)
    assert "ValueError: sample 7 is bad" in text
    assert "while reading sample 7 of Noisy" in text
    assert "in __getitem__" in text
    with pytest.raises(ValueError, match="sample 7 is bad") as direct:
        list(DataLoader(Noisy(bad={7}), 3))
    assert direct.value.__notes__ == ["while reading sample 7 of Noisy"]


def test_a_worker_that_is_killed_is_reported():
    with pytest.raises(DataError, match="killed by SIGKILL") as caught:
        list(DataLoader(Noisy(deadly={4}), 3, num_workers=1))
    assert "[3, 4, 5]" in str(caught.value)


def test_the_batch_that_ended_a_worker_is_reported_though_a_later_one_cannot_be_sent(monkeypatch):
    received = workers._received

    def late(connection):
        time.sleep(0.3)  # meanwhile the worker ends, so the next task finds a broken pipe
        return received(connection)

    monkeypatch.setattr(workers, "_received", late)
    batches = iter(DataLoader(Noisy(deadly={4}), 3, num_workers=1))
    assert next(batches)["index"].tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="killed by SIGKILL") as caught:
        next(batches)
    assert "[3, 4, 5]" in str(caught.value)


def test_a_worker_that_hangs_is_reported():
    with pytest.raises(DataError, match="did not answer in time"):
        list(DataLoader(Noisy(slow={0}), 3, num_workers=1, timeout=0.2))


def test_a_dataset_that_does_not_pickle_is_refused():
    class Local(Noisy):
        pass

    with pytest.raises(DataError, match="cannot be sent to worker processes"):
        list(DataLoader(Local(), num_workers=1))


def test_an_interrupt_ends_the_workers(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import os, signal, sys, time
from weft.data import DataLoader, Dataset
class Slow(Dataset):
    def __getitem__(self, index):
        if index:
            time.sleep(60)
        return os.getpid()
    def __len__(self):
        return 4
if __name__ == "__main__":
    try:
        for batch in DataLoader(Slow(), 1, num_workers=1):
            print(int(batch[0]), flush=True)
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            signal.signal(signal.SIGALRM, lambda *_: os.kill(0, signal.SIGINT))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
""")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
                          check=False)
    pid, word = done.stdout.split()
    assert word == "interrupted", done.stderr
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_an_error_in_the_thread_comes_where_its_batch_would():
    loader = iter(DataLoader(Noisy(bad={4}), 2, prefetch_factor=3))
    assert [list(next(loader)["index"]) for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="sample 4"):
        next(loader)


def test_a_sequence_is_batched_and_continued():
    loader = DataLoader(Counting(), 4)
    assert [list(b) for b in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(loader) == 3
    assert [len(b) for b in DataLoader(Counting(), 4, drop_last=True)] == [4, 4]
    running = iter(loader)
    next(running)
    other = DataLoader(Counting(), 4)
    other.load_state_dict(loader.state_dict())
    equal(list(other), list(running))


@pytest.mark.parametrize("options", [
    {"shuffle": True, "sampler": [0]}, {"batch_size": 0}, {"num_workers": -1},
    {"batch_size": None, "drop_last": True}, {"batch_sampler": [[0]], "shuffle": True},
    {"prefetch_factor": 0}, {"timeout": -1}])
def test_contradicting_arguments_are_refused(options):
    with pytest.raises(OptionError, match="DataLoader"):
        DataLoader(Noisy(), **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"num_workers": 1}, {"sampler": [1]}])
def test_a_sequence_has_no_order_and_no_workers(options):
    with pytest.raises(OptionError, match="IterableDataset"):
        DataLoader(Counting(), **options)


def test_single_samples_and_given_orders():
    data = ArrayDataset(np.arange(5))
    assert list(DataLoader(data, None)) == [0, 1, 2, 3, 4]
    assert [list(b) for b in DataLoader(data, 2, sampler=[4, 2, 0])] == [[4, 2], [0]]
    assert [list(b) for b in DataLoader(data, batch_sampler=[[3], [1, 2]])] == [[3], [1, 2]]


def test_collate_keeps_structure_and_refuses_differences():
    batch = default_collate([{"x": (1, 2.0, "a"), "y": np.ones(2, np.uint8), "z": [True]}] * 2)
    assert batch["x"][0].dtype == np.int64
    assert batch["x"][1].dtype == np.float32
    assert batch["x"][2] == ["a", "a"]
    assert batch["y"].shape == (2, 2)
    assert batch["z"][0].dtype == np.bool_
    for samples, what in (([np.ones(2), np.ones(3)], "shapes"), ([(1,), (1, 2)], "lengths"),
                          ([{"a": 1}, {"b": 1}], "keys"),
                          ([np.ones(2), np.ones(2, np.float32)], "dtypes")):
        with pytest.raises(DataError, match=what):
            default_collate(samples)
    with pytest.raises(DataError, match="collate_fn"):
        default_collate([object(), object()])


def test_samplers():
    data = range(10)
    assert list(SequentialSampler(data)) == list(data)
    assert sorted(RandomSampler(data, seed=3)) == list(data)
    long = list(RandomSampler(data, num_samples=25))
    assert sorted(long[:10]) == sorted(long[10:20]) == list(data)
    assert len(set(long[20:])) == 5
    assert len(list(RandomSampler(data, replacement=True, num_samples=100))) == 100
    assert sorted(SubsetRandomSampler([4, 8, 2])) == [2, 4, 8]
    drawn = WeightedRandomSampler([0, 1, 3], 4000).order(0)
    assert abs(np.mean(drawn == 2) - 0.75) < 0.03
    assert 0 not in drawn
    assert len(BatchSampler(data, 4, False)) == 3
    with pytest.raises(DataError, match="replacement=True"):
        WeightedRandomSampler([1, 0], 2, replacement=False)


def test_datasets_of_datasets():
    parts = random_split(ArrayDataset(np.arange(10)), [0.5, 0.25, 0.25], seed=2)
    assert [len(part) for part in parts] == [6, 2, 2]
    assert sorted(x for part in parts for x in (part[i] for i in range(len(part)))) == [*range(10)]
    both = ConcatDataset([parts[0], Subset(ArrayDataset(np.arange(10)), [9])])
    assert (len(both), both[6], both[-1]) == (7, 9, 9)
    with pytest.raises(IndexError):
        both[7]
    with pytest.raises(DataError, match="do not add up"):
        random_split(both, [1, 2])
    with pytest.raises(DataError, match="differ in length"):
        ArrayDataset(np.ones(2), np.ones(3))
    assert TensorDataset(np.ones((2, 3)))[0][0].shape == (3,)


def test_random_transforms_are_functions_of_seed_epoch_and_index():
    images = np.arange(6 * 8 * 8, dtype=np.float32).reshape(6, 1, 8, 8)
    data = ArrayDataset(images, transform=Compose([RandomCrop(8, padding=2),
                                                   RandomHorizontalFlip()]))
    one, two = (DataLoader(data, 2, seed=4), DataLoader(data, 3, seed=4))
    first = np.concatenate(list(one))
    np.testing.assert_array_equal(first, np.concatenate(list(two)))  # whatever the batches are
    again = np.concatenate(list(one))
    assert (first != again).any()  # another epoch
    for image, original in zip(first, images, strict=True):
        values = image[image > 0]
        assert np.isin(values, original).all()


def test_progress_is_shown(capsys):
    loader = DataLoader(ArrayDataset(np.arange(4)), 2, progress="reading")
    for _ in loader:
        loader.detail = "loss 1"
    assert "reading 0 (2)" in capsys.readouterr().err


def test_data_imports_no_compiler():
    code = ("import sys, weft.data, weft.checkpoints; "
            "print([m for m in sys.modules if m.startswith(('weft.ir', 'weft.compiler', 'pyarrow',"
            " 'llvmlite', 'rich', 'safetensors'))])")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("kind", ["uint8", "int16", "uint32", "int64"])
@pytest.mark.parametrize("tensors", [False, True])
def test_batches_go_into_losses(kind: str, tensors: bool):
    labels = (np.arange(12) % 3).astype(kind)
    points = np.linspace(-1, 1, 24, dtype=np.float32).reshape(12, 2)
    model, losses = weft.nn.Linear(2, 3), weft.nn.functional
    for x, y in DataLoader(ArrayDataset(points, labels), 6, tensors=tensors, pin_memory=True):
        for loss in (losses.cross_entropy, losses.multi_margin_loss):
            loss(model(x), y).backward()
        losses.nll_loss(losses.log_softmax(model(x), 1), y).backward()


def test_samples_that_are_tensors_make_tensors():
    samples = [(weft.tensor([1.0, float(i)]), i) for i in range(4)]
    x, y = next(iter(DataLoader(samples, 4)))
    assert isinstance(x, weft.Tensor)
    assert isinstance(y, np.ndarray)
    np.testing.assert_array_equal(x.numpy()[:, 1], y)


class Ragged:
    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> np.ndarray:
        return np.zeros(2 if index == 3 else 1)


def test_errors_name_the_item_of_the_dataset():
    with pytest.raises(DataError, match="sample 3 of Ragged"):
        list(DataLoader(Ragged(), 5))

    def wrong(samples: list[object]) -> None:
        raise ValueError("no batch")

    with pytest.raises(ValueError, match="no batch") as found:
        list(DataLoader(Ragged(), 2, collate_fn=wrong))
    assert found.value.__notes__ == ["while collating samples [0, 1] of Ragged"]


def test_generators_give_seeds():
    data, made = ArrayDataset(np.arange(9)), weft.Generator().manual_seed(5)
    one, two = (DataLoader(data, 9, shuffle=True, **options)
                for options in ({"seed": 5}, {"generator": made}))
    equal(list(one), list(two))
    assert list(RandomSampler(data, generator=made)) == list(RandomSampler(data, seed=5))
    with pytest.raises(OptionError, match="not a generator"):
        RandomSampler(data, generator=5)


def _slow_start(number: int) -> None:
    os.environ["WEFT_TEST_WORKER"] = str(number)


class Workers:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return int(os.environ["WEFT_TEST_WORKER"])


def test_workers_begin_with_a_function():
    loader = DataLoader(Workers(), 1, num_workers=2, worker_init_fn=_slow_start,
                        persistent_workers=True)
    assert [int(batch[0]) for batch in loader] == [0, 1, 0, 1]
