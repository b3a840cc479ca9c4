"""``tools/replay.py`` sees a change of code, and no change of names."""

from __future__ import annotations

import weft
from tools.replay import TARGETS, _digest, _operator_cases, digests


def test_the_corpus_has_the_cases_of_operators() -> None:
    names = {name for name, _ in _operator_cases()}
    assert {"tanh#0", "nn.max_pool2d_indices#0"} <= names


def test_a_digest_ignores_names_alone() -> None:
    text = "define void @f(ptr %x) {\nentry:\n  %a = load float, ptr %x\n  ret void\n}\n"
    assert _digest(text) == _digest(text.replace("%a", "%b").replace("entry", "start"))
    assert _digest(text) != _digest(text.replace("float", "double"))


def test_kernels_of_one_program_have_the_same_digests() -> None:
    kernels = [digests(weft.parse(f"def @main(%x: Tensor[(8), float32]) {{ {call} }}"), TARGETS[0])
               for call in ("tanh(%x)", "tanh(%x)", "exp(%x)")]
    assert kernels[0] == kernels[1]
    assert kernels[0][0][1] != kernels[2][0][1]
