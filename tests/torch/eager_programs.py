"""Random programs of tensors for weft and torch: views, writes in place, reads, gradients.

A program is drawn line by line with torch; a line that torch refuses is left out. The same text
runs with ``weft`` instead of ``torch``. Results of arithmetic are made contiguous, as weft's
are; operands of writes are copies, as torch leaves open what a write of overlapping memory gives.
``.data`` is left out: torch's gradients are those of the changed values then, without a word.
Also left out, as ``test_eager_views`` shows why: writes to the memory of a leaf whose elements
overlap, and lists of indices that give no elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

VIEWS = (
    "{a}[{i}:]", "{a}[:{j}]", "{a}[..., 1:]", "{a}[::2]", "{a}[{i}]", "{a}[-1]", "{a}[None]",
    "{a}[:, None]", "{a}[..., 0]", "{a}[...]", "{a}[{i}, ...]", "{a}[1:, ..., :2]", "{a}[0:0]",
    "{a}.t()", "{a}.T", "{a}[None].mT", "{a}.transpose(0, -1)",
    "{a}.permute(*range({a}.ndim)[::-1])",
    "{a}.view(-1)", "{a}.view(2, -1)", "{a}.view({a}.shape)", "{a}.view_as({b})",
    "{a}.reshape(-1)", "{a}.reshape(-1, 2)", "{a}.reshape({b}.shape)", "{a}.flatten()",
    "{a}.flatten(-2)", "{a}.unflatten(-1, (-1, 1))", "{a}.unsqueeze(0)", "{a}.unsqueeze(-1)",
    "{a}.squeeze()", "{a}.squeeze(0)", "{a}.expand(2, *{a}.shape)", "{a}.expand_as({b})",
    "{a}[:1].expand(3, *{a}.shape[1:])", "{a}.narrow(0, {i}, 1)", "{a}.select(-1, {i})",
    "{a}.chunk(2)[-1]", "{a}.chunk(2, -1)[0]", "{a}.split(1)[{i}]", "{a}.split(2, -1)[0]",
    "{a}.unbind(0)[{i}]", "list({a})[-1]", "{a}.movedim(0, -1)", "{a}.diagonal()",
    "{a}.diagonal(1)", "{a}.diagonal(-1, -1, 0)", "{a}.unfold(0, 2, 1)", "{a}.unfold(-1, 2, 2)",
    "{a}.unfold(0, 1, 2)", "{a}.detach()", "{a}.detach()[{i}]", "{a}.contiguous()",
    "{a}.swapaxes(0, -1)", "{a}.to({a}.dtype)",
    "{a}.detach().requires_grad_()",
)
VALUES = (
    "({a} + {b}).contiguous()", "({a} * 0.5).contiguous()", "({a} * {b}).contiguous()",
    "({a} - 1).contiguous()", "{a}.sum(0).contiguous()", "{a}.sum()", "{a}.sum(-1).contiguous()",
    "lib.cat([{a}, {a}]).contiguous()", "lib.stack([{a}, {a}]).contiguous()",
    "{a}.clone().contiguous()", "{a}.sin().contiguous()", "{a}[[0, -1]].contiguous()",
    "{a}[[1, 0], [0, 1]].contiguous()", "{a}[{a} > 0].contiguous()",
    "{a}[0, ..., [1, 0]].contiguous()", "{a}[True].contiguous()", "{a}[False].contiguous()",
    "{a}.masked_fill({a} > 0, 0.25).contiguous()", "{a}.amax(0).contiguous()",
)
WRITES = (
    "{a}.add_(1)", "{a}.mul_({c})", "{a}.mul_(0.5)", "{a}.sub_({c})", "{a}.sin_()", "{a}.zero_()",
    "{a}.fill_(0.5)", "{a}.copy_({c})", "{a}.copy_({c}.detach())", "{a}.clamp_(-1, 1)",
    "{a}.add_({a})", "{a}.masked_fill_({a} > 0.5, 0.25)", "{a}[0].add_(1)", "{a}.detach().mul_(2)",
    "{a}.t().sub_(0.25)", "{a}.view(-1)[::2].add_(1)",
    "{a}[0].copy_({c})", "{a}.diagonal().fill_(2)", "{a}.neg_()",
    "{a}.unfold(0, 1, 2).mul_(3)", "{a}.expand(2, *{a}.shape).zero_()",
)
STATEMENTS = (
    "{a}[{i}] = 1.5", "{a}[:, 0] = {c}", "{a}[0] = {c}", "{a}[...] = {c}", "{a}[None, 0] = 2",
    "{a}[::2] *= 2", "{a}[{a} > 0] = -1.0", "{a}[[0, -1]] = 0.5", "{a} += 1", "{a} *= {c}",
    "{a} //= 2", "{a}[-1] += {c}", "{a}[..., 1:] -= 0.5", "{a}[True] = 0.75", "{a}[1:1] = 3",
    "{a} **= 2", "{a} %= 0.75",
)
SHAPES = ((2, 3), (3, 3), (4,), (2, 1, 3), ())
KINDS = (VIEWS, VALUES, WRITES, STATEMENTS)


@dataclass
class Program:
    """Lines over ``v0``, ``v1`` and so on; ``flows`` says which inputs require gradients."""

    shapes: list[tuple[int, ...]]
    flows: list[bool]
    seed: int
    lines: list[str] = field(default_factory=list)

    def inputs(self, lib: Any) -> list[Any]:
        rng = np.random.default_rng(self.seed)
        return [lib.tensor(rng.uniform(-1, 1, shape).astype(np.float32), requires_grad=flows)
                for shape, flows in zip(self.shapes, self.flows, strict=True)]

    def __str__(self) -> str:
        shapes = ", ".join(f"{s}{' with gradient' if f else ''}"
                           for s, f in zip(self.shapes, self.flows, strict=True))
        return "\n".join([f"inputs: {shapes}", *self.lines])


def draw(seed: int, length: int) -> Program:
    """A program of lines that torch runs."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 3))
    with_gradients = rng.random() < 0.6
    program = Program([SHAPES[rng.integers(len(SHAPES))] for _ in range(count)],
                      [bool(with_gradients and rng.random() < 0.7) for _ in range(count)], seed)
    values = program.inputs(torch)
    tries = 0
    while len(program.lines) < length and tries < 20 * length:
        tries += 1
        kind = int(rng.choice(4, p=(0.45, 0.15, 0.2, 0.2)))
        line = _line(rng, kind, values)
        if kind < 2 or _is_clear(line, values):
            made = attempt(line, torch, values)
            if made is None or not _is_tame(made) or ("]]" in line and not made[-1].numel()):
                continue
            values = made
            program.lines.append(line)
    return program


def _line(rng: np.random.Generator, kind: int, values: Sequence[Any]) -> str:
    names = [f"v{max(0, len(values) - int(rng.geometric(0.35)))}" for _ in range(2)]
    texts = KINDS[kind]
    text = texts[rng.integers(len(texts))].format(
        a=names[0], b=names[1], c=f"{names[1]}.clone()", i=rng.integers(2), j=rng.integers(1, 3))
    if kind < 2:
        text = f"v{len(values)} = {text}"
    # torch says of a view of a leaf that it requires a gradient, under ``no_grad`` as well.
    return f"with lib.no_grad(): {text}" if kind and rng.random() < 0.2 else text


def attempt(line: str, lib: Any, values: Sequence[Any]) -> list[Any] | None:
    """The values after a line, ``None`` where the library refuses it."""
    names = {f"v{i}": value for i, value in enumerate(values)}
    try:
        exec(line, {"lib": lib}, names)
    except (RuntimeError, IndexError, TypeError, ValueError):
        if lib is not torch:
            raise
        return None
    made = [names[f"v{i}"] for i in range(len(names))]
    return made if all(hasattr(value, "requires_grad") for value in made) else None


def _is_tame(values: Sequence[Any]) -> bool:
    last = values[-1]
    try:
        return last.numel() <= 60 and last.ndim <= 4 and last.dtype == torch.float32 and all(
            bool(v.detach().isfinite().all()) and not bool((v.detach().abs() > 100).any())
            for v in values)
    except RuntimeError:  # one of several views of an operator, which was changed
        return False


def _is_clear(line: str, values: Sequence[Any]) -> bool:
    """Whether a write goes to a tensor whose elements are apart from each other in memory, as those
    of the leaves in this memory are.
    """
    text = line.removeprefix("with lib.no_grad(): ")
    target = values[int(text[1:].split(".")[0].split("[")[0].split(" ")[0])]
    memory = target.untyped_storage().data_ptr()
    return _is_apart(target) and all(
        _is_apart(v) or not (v.requires_grad and v.is_leaf) for v in values
        if v.untyped_storage().data_ptr() == memory)


def _is_apart(x: Any) -> bool:
    """Whether the elements of a tensor are apart from each other in memory."""
    size = x.untyped_storage().nbytes() // 4
    places = torch.arange(size).as_strided(x.shape, x.stride(), x.storage_offset())
    return places.unique().numel() == x.numel()


def leaves(values: Sequence[Any], lib: Any) -> list[Any]:
    """The gradients that a sum of squares of all values leaves in the leaves; ``None`` if torch
    refuses that.
    """
    wanted = [v for v in values if v.requires_grad]
    if wanted:
        try:
            total = sum(((v * (0.5 + 0.25 * i)) ** 2).sum() for i, v in enumerate(wanted))
            total.backward()
        except RuntimeError:
            if lib is not torch:
                raise
            return []
    return [v.grad if v.is_leaf else None for v in values]


def array(value: Any) -> np.ndarray:
    return np.asarray(value.detach())


def differences(mine: Sequence[Any], theirs: Sequence[Any]) -> list[str]:
    """How values differ, in words."""
    found = []
    for i, (got, expected) in enumerate(zip(mine, theirs, strict=True)):
        if tuple(got.shape) != tuple(expected.shape):
            found.append(f"v{i}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}")
        elif not np.allclose(array(got), array(expected), rtol=1e-4, atol=1e-5):
            found.append(f"v{i}: {array(got).tolist()}, expected {array(expected).tolist()}")
        elif expected.numel() and _places(got) != _places(expected):
            found.append(f"v{i}: strides {_places(got)}, expected {_places(expected)}")
        elif bool(got.requires_grad) != expected.requires_grad:
            found.append(f"v{i}: requires_grad {got.requires_grad}, "
                         f"expected {expected.requires_grad}")
    return found


def _places(x: Any) -> tuple[Any, ...]:
    strides = [0 if n == 1 else s for n, s in zip(x.shape, x.stride(), strict=True)]
    return x.storage_offset(), strides


def gradient_differences(mine: Sequence[Any], theirs: Sequence[Any]) -> list[str]:
    """How gradients differ; none is as good as zeros."""
    found = []
    for i, (got, expected) in enumerate(zip(mine, theirs, strict=False)):
        a = np.zeros(()) if got is None else array(got)
        b = np.zeros(()) if expected is None else array(expected)
        if not np.allclose(a, b, rtol=1e-3, atol=1e-4):
            found.append(f"gradient of v{i}: {a.tolist()}, expected {b.tolist()}")
    return found
