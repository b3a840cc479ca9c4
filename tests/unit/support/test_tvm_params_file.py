"""Files of parameters of TVM: read as its source writes them, and refused where damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.support.errors import InvalidModelError
from weft.support.tvm_params_file import read_tvm_params

CODES = {"i": 0, "u": 1, "f": 2, "b": 1}


def written(arrays: dict[str, np.ndarray]) -> bytes:
    """What ``SaveParams`` writes."""
    names = b"".join(struct.pack("<Q", len(name)) + name.encode() for name in arrays)
    data = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, len(arrays)) + names
    data += struct.pack("<Q", len(arrays))
    for array in arrays.values():
        bits = 1 if array.dtype == bool else array.dtype.itemsize * 8
        data += struct.pack("<QQ", 0xDD5E40F096B4A13F, 0) + struct.pack("<ii", 1, 0)
        data += struct.pack("<iBBH", array.ndim, CODES[array.dtype.kind], bits, 1)
        data += struct.pack(f"<{array.ndim}q", *array.shape)
        data += struct.pack("<q", array.nbytes) + array.tobytes()
    return data


ARRAYS = {"p0": np.arange(6, dtype=np.float32).reshape(2, 3), "scalar": np.array(7, np.int64),
          "bits": np.array([True, False]), "none": np.zeros((0, 2), np.float16)}


def test_arrays_come_back(tmp_path: Path) -> None:
    path = tmp_path / "net.params"
    path.write_bytes(written(ARRAYS))
    found = read_tvm_params(path)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_truth_values_have_two_codes(tmp_path: Path) -> None:
    """That of a type of one bit, and DLPack's own, which TVM has written since it has one."""
    path = tmp_path / "net.params"
    whole = written({"bits": ARRAYS["bits"]})
    path.write_bytes(whole.replace(struct.pack("<BBH", 1, 1, 1), struct.pack("<BBH", 6, 8, 1)))
    np.testing.assert_array_equal(read_tvm_params(path)["bits"], ARRAYS["bits"], strict=True)


def test_sizes_beyond_those_of_arrays_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "net.params"
    whole = written({"none": ARRAYS["none"]})
    path.write_bytes(whole.replace(struct.pack("<qq", 0, 2), struct.pack("<qq", 0, 2**62)))
    with pytest.raises(InvalidModelError, match="damaged"):
        read_tvm_params(path)


def test_weights_of_a_module_are_set(tmp_path: Path) -> None:
    weft.manual_seed(0)
    model = weft.nn.Linear(3, 2)
    model.eval()
    mod = weft.compile(model, example_inputs=(np.ones((1, 3), np.float32),))
    path = tmp_path / "net.params"
    path.write_bytes(written({"weight": ARRAYS["p0"], "bias": np.ones(2, np.float32)}))
    mod.set_weights(path)
    np.testing.assert_array_equal(mod(np.ones((1, 3), np.float32)), [[4, 13]])


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    whole, path = written(ARRAYS), tmp_path / "net.params"
    rng = np.random.default_rng(0)
    for cut in range(0, len(whole), 3):
        path.write_bytes(whole[:cut])
        with pytest.raises(InvalidModelError):
            read_tvm_params(path)
    for _ in range(150):
        data = bytearray(whole)
        data[rng.integers(len(data))] = rng.integers(256)
        path.write_bytes(data)
        try:
            found = read_tvm_params(path)
        except InvalidModelError:
            continue
        assert all(array.nbytes <= len(whole) for array in found.values())
