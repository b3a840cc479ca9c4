"""Padding and packing of sequences."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import nn
from weft.nn.utils import rnn
from weft.support.errors import InvalidInputError


def test_packing_restores_the_order():
    given = [weft.ones(2, 3), weft.zeros(4, 3), weft.ones(1, 3) * 5]
    packed = rnn.pack_sequence(given, enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [3, 2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0, 2]
    for found, expected in zip(rnn.unpack_sequence(packed), given, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    left = rnn.pad_sequence(given, batch_first=True, padding_value=-1.0, padding_side="left")
    assert left[2, :, 0].tolist() == [-1, -1, -1, 5]


def test_a_packed_batch_is_each_of_its_sequences():
    layer = nn.GRU(3, 4, bidirectional=True)
    given = [weft.tensor(np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32))
             for n in (4, 2)]
    result, last = layer(rnn.pack_sequence(given))
    for i, found in enumerate(rnn.unpack_sequence(result)):
        alone, own = layer(given[i])
        np.testing.assert_allclose(found.detach().numpy(), alone.detach().numpy(), rtol=1e-5,
                                   atol=1e-6)
        np.testing.assert_allclose(last[:, i].detach().numpy(), own.detach().numpy(), rtol=1e-5,
                                   atol=1e-6)


def test_wrong_lengths_are_explained():
    x = weft.ones(4, 2, 3)
    with pytest.raises(InvalidInputError, match="the lengths do not fall"):
        rnn.pack_padded_sequence(x, [2, 4])
    with pytest.raises(InvalidInputError, match="out of range"):
        rnn.pack_padded_sequence(x, [5, 1])
    with pytest.raises(InvalidInputError, match="one length for each"):
        rnn.pack_padded_sequence(x, [1])
    with pytest.raises(InvalidInputError, match="too short"):
        rnn.pad_packed_sequence(rnn.pack_padded_sequence(x, [4, 1]), total_length=3)
