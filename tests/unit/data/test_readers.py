"""Readers of files: what they read, and what they say of damaged ones."""

from __future__ import annotations

import gzip
import os
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.data import (
    CIFAR10,
    MNIST,
    Corpus,
    Normalize,
    RandomCrop,
    TableDataset,
    ToDtype,
    ToTensor,
    batchify,
    get_batch,
    read_idx,
    read_table,
)
from weft.data.cifar import read_batch
from weft.support.errors import DataError

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, (4, 28, 28), np.uint8)
LABELS = np.array([3, 1, 4, 1], np.uint8)


def idx(array, code):
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def mnist(tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    folder.mkdir(parents=True)
    (folder / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES, 8)))
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(LABELS, 8))
    return tmp_path


def test_mnist(mnist):
    data = MNIST(mnist, transform=ToDtype("float32", scale=True))
    image, label = data[2]
    np.testing.assert_allclose(image, IMAGES[2:3] / 255, rtol=1e-6)
    assert (len(data), int(label), image.dtype) == (4, 4, np.float32)
    with pytest.raises(DataError, match="a data file is missing"):
        MNIST(mnist, train=False)
    (mnist / "train-labels-idx1-ubyte").write_bytes(idx(LABELS[:3], 8))
    with pytest.raises(DataError, match="do not match"):
        MNIST(mnist)


@pytest.mark.parametrize(("dtype", "code"), [("i1", 9), ("i2", 0xB), ("i4", 0xC), ("f4", 0xD),
                                             ("f8", 0xE)])
def test_idx_of_every_dtype(tmp_path, dtype, code):
    array = RANDOM.integers(-100, 100, (2, 3)).astype(dtype)
    path = tmp_path / "x"
    path.write_bytes(idx(array, code))
    found = read_idx(path)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@given(cut=st.integers(0, 111), is_compressed=st.booleans())
@settings(max_examples=60)
def test_an_idx_file_cut_anywhere_is_refused(tmp_path_factory, cut, is_compressed):
    whole = idx(IMAGES[0, :4, :25], 8)
    if is_compressed:
        whole = gzip.compress(whole, 0)
    path = tmp_path_factory.mktemp("cut") / "x"
    path.write_bytes(whole[:cut])
    with pytest.raises(DataError) as caught:
        read_idx(path)
    assert str(path) in caught.value.where


def test_bytes_after_the_end_and_other_files(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(idx(LABELS, 8) + b"more")
    with pytest.raises(DataError, match="has bytes after its end") as caught:
        read_idx(path)
    assert caught.value.where.endswith("offset 12")
    path.write_bytes(b"\x89PNG....")
    with pytest.raises(DataError, match="not an idx file"):
        read_idx(path)


def batch(n=3):
    return {b"batch_label": b"testing batch 1 of 1", b"labels": [int(x) for x in range(n)],
            b"data": RANDOM.integers(0, 256, (n, 3072), np.uint8),
            b"filenames": [b"a.png"] * n}


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifar_as_pickles(tmp_path, protocol):
    value = batch()
    (tmp_path / "test_batch").write_bytes(pickle.dumps(value, protocol))
    data = CIFAR10(tmp_path, train=False)
    np.testing.assert_array_equal(data.arrays[0], value[b"data"].reshape(3, 3, 32, 32))
    assert data.arrays[1].tolist() == [0, 1, 2]


def python2_batch():
    """The opcodes that cPickle of Python 2 wrote, as in the files of CIFAR-10."""
    def text(value):
        if len(value) < 256:
            return b"U" + bytes([len(value)]) + value
        return b"T" + struct.pack("<I", len(value)) + value

    pixels = bytes(range(256)) * 12
    dtype = (b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
             b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb")
    array = (b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b")
             + b"\x87R(K\x01K\x01M\x00\x0c\x86" + dtype + b"\x89" + text(pixels) + b"tb")
    return (b"\x80\x02}q\x01(" + text(b"batch_label") + text(b"x") + text(b"labels")
            + b"]q\x02K\x06a" + text(b"data") + array + b"u."), pixels


def test_cifar_as_python_2_wrote_it(tmp_path):
    data, pixels = python2_batch()
    assert set(pickle.loads(data, encoding="bytes")) == {b"batch_label", b"labels", b"data"}
    path = tmp_path / "data_batch_1"
    path.write_bytes(data)
    images, labels = read_batch(path)
    assert images.tobytes() == pixels
    assert labels.tolist() == [6]


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


@pytest.mark.parametrize("value", [Attack(), {b"data": Attack()}, [print], {b"labels": slice(1)},
                                   np.array([Attack()], object)])
def test_a_pickle_is_never_executed(tmp_path, monkeypatch, value):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "test_batch"
    path.write_bytes(pickle.dumps(value, 2))
    with pytest.raises(DataError, match=r"more than plain values|not a batch"):
        CIFAR10(tmp_path, train=False)
    assert not (tmp_path / "attacked").exists()


@given(cut=st.integers(0, 9400), flip=st.integers(0, 400), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_a_damaged_pickle_is_refused_or_read(tmp_path_factory, cut, flip, value):
    data = bytearray(pickle.dumps(batch(), 2))
    data[flip] = value
    path = tmp_path_factory.mktemp("pickle") / "test_batch"
    path.write_bytes(data[:cut])
    try:
        read_batch(path)
    except DataError as error:
        assert str(path) in error.where  # noqa: PT017


def test_cifar_binary(tmp_path):
    records = RANDOM.integers(0, 256, (2, 3073), np.uint8)
    records[:, 0] = [7, 2]
    path = tmp_path / "test_batch.bin"
    path.write_bytes(records.tobytes())
    data = CIFAR10(tmp_path, train=False)
    assert data.arrays[1].tolist() == [7, 2]
    np.testing.assert_array_equal(data[1][0].reshape(-1), records[1, 1:])
    path.write_bytes(records.tobytes()[:-5])
    with pytest.raises(DataError, match="ends too early") as caught:
        CIFAR10(tmp_path, train=False)
    assert caught.value.where.endswith("offset 6141")
    records[0, 0] = 10
    path.write_bytes(records.tobytes())
    with pytest.raises(DataError, match="label of CIFAR-10 is out of range"):
        CIFAR10(tmp_path, train=False)


def test_the_treebank(tmp_path):
    for name, text in (("train", " a b c \n d a\n"), ("valid", "b e\n"), ("test", "c\n")):
        (tmp_path / f"ptb.{name}.txt").write_text(text)
    corpus = Corpus(tmp_path)
    assert corpus.dictionary.idx2word == ["a", "b", "c", "<eos>", "d", "e"]
    assert corpus.train.tolist() == [0, 1, 2, 3, 4, 0, 3]
    assert corpus.valid.tolist() == [1, 5, 3]
    assert Corpus(tmp_path, max_lines=1).train.tolist() == [0, 1, 2, 3]
    columns = batchify(corpus.train, 2)
    assert columns.tolist() == [[0, 3], [1, 4], [2, 0]]
    x, y = get_batch(columns, 0, 5)
    assert x.tolist() == [[0, 3], [1, 4]]
    assert y.tolist() == [1, 4, 2, 0]
    with pytest.raises(DataError, match="no rows"):
        get_batch(columns, 2, 5)
    with pytest.raises(DataError, match="shorter than a batch"):
        batchify(corpus.train, 8)
    (tmp_path / "ptb.test.txt").write_bytes(b"ok \xff\xfe")
    with pytest.raises(DataError, match="not UTF-8") as caught:
        Corpus(tmp_path)
    assert caught.value.where.endswith("offset 3")


def test_tables(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import csv, parquet

    table = pa.table({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5], "kind": ["x", "y", "z"],
                      "label": [0, 1, 0]})
    csv.write_csv(table, tmp_path / "t.csv")
    parquet.write_table(table, tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        columns = read_table(tmp_path / name)
        assert list(columns) == ["a", "b", "kind", "label"]
        assert columns["a"].tolist() == [1, 2, 3]
        data = TableDataset(tmp_path / name, ["a", "b"], "label")
        row, label = data[1]
        assert (row.tolist(), row.dtype, int(label)) == ([2.0, 1.5], np.float32, 1)
        with pytest.raises(DataError, match="not a number"):
            TableDataset(tmp_path / name, target="label")
        with pytest.raises(DataError, match="lacks a column"):
            read_table(tmp_path / name, ["c"])
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,\n")
    with pytest.raises(DataError, match="missing values") as caught:
        read_table(tmp_path / "t.csv")
    assert "the first in row 1" in str(caught.value)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 damaged")
    with pytest.raises(DataError, match="a table cannot be read"):
        read_table(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="unknown kind"):
        read_table(tmp_path / "t.xls")


def test_transforms():
    image = RANDOM.integers(0, 256, (5, 6, 3), np.uint8)
    tensor = ToTensor()(image)
    assert tensor.shape == (3, 5, 6)
    np.testing.assert_allclose(tensor, image.transpose(2, 0, 1) / 255, rtol=1e-6)
    normal = Normalize([0.5, 0.4, 0.3], [0.2, 0.2, 0.1])(tensor)
    np.testing.assert_allclose(normal[2], (tensor[2] - 0.3) / 0.1, rtol=1e-5, atol=1e-5)
    with pytest.raises(DataError, match="float dtype"):
        Normalize([0.5], [1])(image)
    with pytest.raises(DataError, match="larger than the image"):
        RandomCrop(9)(tensor)
