"""One operator of PyTorch through weft's backend, compared with eager torch.

A sample goes through ``weft.torch_backend`` as a graph of one call, the form in which TorchDynamo
hands graphs over; Dynamo itself is left out because it costs more than everything after it.
AOTAutograd, the importer, the partition, the compiler and the fallback are those of users.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any

import torch
import torch.fx

import weft
from tests.torch.opinfo_samples import Sample, operators, samples, seed_all, supports
from weft.compiler.integrations.torch import left_to_torch
from weft.compiler.integrations.torch.fallback import GraphReport

# They name one of several equal elements, and torch says not which.
_PICKS_ANY_OF_EQUALS = ("topk", "kthvalue", "median", "nanmedian", "mode", "msort", "sort")
# What they give is not initialised.
_UNDEFINED = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
              "new_empty_strided")


class Status(IntEnum):
    """The worst of its samples is the status of an operator."""

    NO_SAMPLES = 0
    NOT_TRACED = 1  # AOTAutograd gives up: TorchDynamo would not hand such a graph over
    COMPUTED = 2
    TORCH = 3  # right, and some node was left to torch
    RAISES = 4
    WRONG = 5
    CRASHED = 6


@dataclass
class Outcome:
    """What became of the samples of one operator for one element type."""

    operator: str
    dtype: str
    gradients: bool
    status: Status = Status.NO_SAMPLES
    samples: int = 0
    detail: str = ""
    left: list[str] = field(default_factory=list)

    def record(self, status: Status, detail: str, left: Sequence[str]) -> None:
        """Count one sample; the first text of the worst status is kept."""
        if not self.samples or status > self.status:
            self.status, self.detail = status, detail
        self.samples += 1
        self.left = sorted({*self.left, *left})

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "status": self.status.name}


def run_operator(name: str, dtype: str, count: int, *, gradients: bool) -> Outcome:
    """The first ``count`` samples of an operator, forward, and backward with ``gradients``."""
    op = operators()[name]
    outcome = Outcome(name, dtype, gradients)
    if not supports(op, dtype, gradients=gradients):
        return outcome
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(op, dtype, count, gradients=gradients):
            outcome.record(*_run_sample(op, sample, gradients=gradients))
    return outcome


def _run_sample(op: Any, sample: Sample, *, gradients: bool) -> tuple[Status, str, list[str]]:
    try:
        expected, slopes = _evaluated(sample.call, sample.fresh(), gradients=gradients)
    except Exception:  # noqa: BLE001 - torch itself refuses its sample
        return Status.NOT_TRACED, "eager torch raises", []
    with left_to_torch() as reports:
        try:
            given = sample.fresh()
            got, got_slopes = _evaluated(_compiled(sample, given), given, gradients=gradients)
        except Exception as error:  # noqa: BLE001 - any failure is one line of the report
            return Status.RAISES, f"{sample.name}: {_one_line(error)}", []
    left = [text for report in reports for text in _left(report)]
    if op.name in _UNDEFINED:
        got, expected = [_like(r) for r in got], [_like(r) for r in expected]
    try:
        _compare(got, expected, _indices_of(op.name), sample.tensors)
        _compare(got_slopes, slopes)
    except AssertionError as error:
        if not _is_exact(sample, [*got, *got_slopes], [*expected, *slopes],
                         gradients=gradients):
            return Status.WRONG, f"{sample.name}: {_one_line(error)}", left
    if any(report.kind == "untraced" for report in reports):
        return Status.NOT_TRACED, f"{sample.name}: {'; '.join(left)}"[:600], left
    detail = f"{sample.name}: {'; '.join(dict.fromkeys(left))}"[:600] if left else ""
    return (Status.TORCH if left else Status.COMPUTED), detail, left


def _left(report: GraphReport) -> list[str]:
    """What torch runs of a graph, with the reasons, and what weft failed to compile."""
    failed = [f"{report.kind} failed: {error[:300]}" for error in report.failed]
    return [*failed, *(f"{report.kind} {name} ({report.reasons.get(name, '')[:120]})"
                       for name in sorted(report.left))]


def _compiled(sample: Sample, given: Sequence[torch.Tensor]) -> Any:
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(f"x{i}") for i in range(len(given))]
    graph.output(graph.call_function(sample.call, tuple(inputs)))
    return weft.torch_backend(torch.fx.GraphModule({}, graph), given)


def _evaluated(function: Any, tensors: Sequence[torch.Tensor], *, gradients: bool
               ) -> tuple[list[Any], list[Any]]:
    """The results, and with ``gradients`` the slopes along a fixed direction of the inputs."""
    seed_all()
    results = list(function(*tensors))
    moving = [t for t in tensors if t.requires_grad]
    slopes: list[Any] = []
    if gradients and moving:
        ends = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        directions = [_direction(r) for r in ends]
        if ends:
            slopes = list(torch.autograd.grad(ends, moving, directions, allow_unused=True))
    return [_detached(r) for r in results], slopes


def _direction(result: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    shape, dtype = tuple(result.shape), result.dtype
    if dtype.is_complex:
        parts = torch.rand((*shape, 2), generator=generator, dtype=dtype.to_real())
        return torch.view_as_complex(parts.add(0.5))
    real = dtype if dtype.is_floating_point else torch.float32
    return torch.rand(shape, generator=generator, dtype=real).add(0.5).to(dtype)


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _is_exact(sample: Sample, got: Sequence[Any], expected: Sequence[Any], *, gradients: bool
              ) -> bool:
    """Whether float32 results are as near to torch's in float64 as those of torch in float32."""
    wide = [_widened(t) for t in sample.fresh()]
    if not any(t.dtype in (torch.float64, torch.complex128) for t in wide):
        return False
    try:
        results, slopes = _evaluated(sample.call, wide, gradients=gradients)
        for mine, theirs, exact in zip(got, expected, [*results, *slopes], strict=True):
            _compare_exact(mine, theirs, exact)
    except Exception:  # noqa: BLE001 - not comparable: then the first difference counts
        return False
    return True


def _compare_exact(mine: Any, theirs: Any, exact: Any) -> None:
    """Passes where ``mine`` is close to ``exact``, or at most twice as far from it as torch is."""
    if not isinstance(exact, torch.Tensor) or not isinstance(mine, torch.Tensor):
        _compare([mine], [exact])
        return
    finite = torch.isfinite(exact) & torch.isfinite(theirs)
    allowed = 2 * (theirs.to(exact.dtype) - exact).abs()[finite].max() if finite.any() else 0.0
    near = (mine.to(exact.dtype) - exact).abs() <= allowed
    _compare([torch.where(near & finite, exact.to(mine.dtype), mine)], [exact.to(mine.dtype)])


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    wide = {torch.float32: torch.float64, torch.complex64: torch.complex128}.get(tensor.dtype)
    return tensor if wide is None else tensor.detach().to(wide).requires_grad_(tensor.requires_grad)


def _like(value: Any) -> Any:
    """Shape and dtype alone."""
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else value


def _indices_of(name: str) -> int:
    """Which result names one of several equal elements, of which torch may take any; else -1."""
    return {"argsort": 0}.get(name, 1 if name in _PICKS_ANY_OF_EQUALS else -1)


def _compare(got: Sequence[Any], expected: Sequence[Any], indices: int = -1,
             source: Sequence[torch.Tensor] = ()) -> None:
    """The result ``indices`` may name other positions of ``source`` with the same values."""
    assert len(got) == len(expected), f"{len(got)} results, expected {len(expected)}"
    for position, (mine, theirs) in enumerate(zip(got, expected, strict=True)):
        if position == indices and _selects(source[0], mine, theirs):
            continue
        if mine is None or theirs is None:
            # A gradient that is not computed is zero; which one is None is torch's business.
            other = theirs if mine is None else mine
            assert other is None or not torch.count_nonzero(other), "a gradient is missing"
            continue
        torch.testing.assert_close(mine, theirs, equal_nan=True)


def _selects(source: torch.Tensor, mine: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether both are positions of the same values along one axis of ``source``."""
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype or not source.ndim:
        return False
    if mine.ndim < source.ndim:  # an axis was reduced
        shapes = [(*mine.shape[:a], 1, *mine.shape[a:]) for a in range(source.ndim)]
        pairs = [(a, mine.reshape(s), theirs.reshape(s)) for a, s in enumerate(shapes)]
    else:
        pairs = [(a, mine, theirs) for a in range(source.ndim)]
    return any(_same_values(source, axis, p, q) for axis, p, q in pairs)


def _same_values(source: torch.Tensor, axis: int, mine: torch.Tensor, theirs: torch.Tensor
                 ) -> bool:
    for places in (mine, theirs):
        fits = all(p <= s for a, (p, s) in enumerate(zip(places.shape, source.shape, strict=True))
                   if a != axis)
        if not fits or (places.numel() and
                        (places.min() < 0 or places.max() >= source.shape[axis])):
            return False
    first, second = (torch.gather(source, axis, places) for places in (mine, theirs))
    return torch.equal(first, second)


def _one_line(error: BaseException) -> str:
    notes = " | ".join(getattr(error, "notes", None) or ())
    lines = [re.sub(r"\s+", " ", line) for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' / '.join(lines[:5])} {notes}".strip()[:600]
