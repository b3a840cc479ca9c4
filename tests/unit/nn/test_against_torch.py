"""Constructors have torch's arguments; packed sequences give torch's results."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.nn import twins
from weft import nn
from weft.nn.utils import rnn

pytestmark = pytest.mark.torch
# Old names, and base classes that no program constructs.
ABSENT = {"Container", "DataParallel", "NLLLoss2d", "RNNCellBase"}
# torch takes (*args, **kwargs) here, or a function where weft has its name.
FREE = {"GRU", "LSTM", "RNN", "RNNBase", "Module"}


def parameters(cls: Any) -> list[tuple[Any, ...]]:
    found = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return [(p.name, p.kind, "relu" if callable(p.default) and p.name == "activation"
             else p.default)
            for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]


def test_every_layer_has_the_arguments_of_torchs():
    from torch import nn as theirs

    names = {name for name, cls in vars(theirs).items()
             if isinstance(cls, type) and issubclass(cls, theirs.Module)} - ABSENT
    assert not {name for name in names if not hasattr(nn, name)}
    for name in sorted(names - FREE):
        assert parameters(getattr(nn, name)) == parameters(getattr(theirs, name)), name


@pytest.mark.parametrize(("name", "options"), [
    ("LSTM", {"bidirectional": True, "num_layers": 2, "proj_size": 2}),
    ("GRU", {"bidirectional": True})])
def test_packed_sequences(name: str, options: dict[str, Any]):
    import torch
    from torch.nn.utils import rnn as theirs_rnn

    theirs, ours = getattr(torch.nn, name)(4, 6, **options), getattr(nn, name)(4, 6, **options)
    twins.copy_state(theirs, ours)
    x = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    x_t, x_w = torch.tensor(x, requires_grad=True), weft.tensor(x).requires_grad_()
    packed_t = theirs_rnn.pack_padded_sequence(x_t, torch.tensor([3, 5, 1]), enforce_sorted=False)
    packed_w = rnn.pack_padded_sequence(x_w, [3, 5, 1], enforce_sorted=False)
    for ours_part, theirs_part in zip(packed_w, packed_t, strict=True):
        twins.close(ours_part, theirs_part, 0, "packed")
    (y_t, last_t), (y_w, last_w) = theirs(packed_t), ours(packed_w)
    for ours_y, theirs_y in zip(twins.leaves(last_w), twins.leaves(last_t), strict=True):
        twins.close(ours_y, theirs_y, 2e-5, "last state")
    padded_t, lengths_t = theirs_rnn.pad_packed_sequence(y_t, total_length=7, padding_value=-1)
    padded_w, lengths_w = rnn.pad_packed_sequence(y_w, total_length=7, padding_value=-1)
    assert lengths_w.tolist() == lengths_t.tolist()
    twins.backward([padded_t], torch.tensor)
    twins.backward([padded_w], weft.tensor)
    twins.close(padded_w, padded_t, 2e-5, "result")
    twins.close(x_w.grad, x_t.grad, 2e-5, "gradient of the input")
    twins.close_states(ours, theirs, 2e-5)
