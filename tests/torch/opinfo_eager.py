"""Run PyTorch's own operator samples on weft's tensors: ``python -m tests.torch.opinfo_eager``.

Each sample is called by the same name in weft (a function, else a method of the tensor), with the
same arguments, and compared with eager torch: values, dtypes, and gradients in one direction.
Prints how many names exist and what became of the samples. Ends with 1 where a sample fails and
its operator is not listed in ``opinfo_eager_exclusions.txt`` for this kind of failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import weft
from tests.torch import opinfo_run
from tests.torch.opinfo_names import load_lines
from tests.torch.opinfo_samples import DTYPES, Sample, operators, samples, seed_all, supports

EXCLUSIONS = Path(__file__).with_name("opinfo_eager_exclusions.txt")
# What a failed sample is counted as.
KINDS = ("keyword", "zero-dimensional", "boolean", "wrong", "gradient", "complex", "other")
# Element types, and whether gradients are compared.
CONFIGURATIONS = (("float32", True), ("int64", False), ("bool", False))
# Operators of torch alone: kernels given as C++ text, and functions that make no values of tensors.
_NOT_OF_WEFT = ("jiterator", "sparse", "to_sparse", "ops.", "torch.ops.")
_RANDOM = ("bernoulli", "cauchy", "dropout", "exponential", "geometric", "log_normal",
           "multinomial", "normal", "rand", "rrelu", "uniform", "fractional_max_pool",
           "pca_lowrank", "svd_lowrank", "scaled_dot_product_attention_dropout")


# Where OpInfo calls a function of torch with other arguments than those of its sample.
_ADAPTERS: dict[str, Callable[..., Any]] = {
    "einsum": lambda tensors, equation: weft.einsum(equation, tensors),
    "where": lambda x, condition, other: weft.where(condition, x, other),
    "nn.functional.embedding": lambda w, i, **named: weft.nn.functional.embedding(i, w, **named),
    "nn.functional.embedding_bag": lambda w, i, *rest, **named:
        weft.nn.functional.embedding_bag(i, w, *rest, **named),
    "normal.in_place": lambda x, *args, **named: x.clone().normal_(*args, **named),
    "T": lambda x: x.T, "mT": lambda x: x.mT, "H": lambda x: x.H, "mH": lambda x: x.mH,
    "polygamma": lambda x, n: weft.polygamma(n, x),
    "svd_lowrank": lambda a, b, **named: weft.svd_lowrank(a @ b.mT, **named),
    "pca_lowrank": lambda a, b, **named: weft.pca_lowrank(a @ b.mT, **named),
    "linalg.pinv.singular": lambda a, b: weft.linalg.pinv(a @ b.mT),
    "linalg.lstsq.grad_oriented": lambda a, b, **named: weft.linalg.lstsq(a, b, **named)[:2],
    "special.polygamma": lambda x, n: weft.special.polygamma(n, x),
}


class NotFound(Exception):  # noqa: N818 - an answer
    """Weft has no function and no method of the name."""


@dataclass
class Outcome:
    """What became of the samples of one operator for one element type."""

    operator: str
    dtype: str
    gradients: bool
    exists: bool = True
    samples: int = 0
    agree: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)

    def fail(self, kind: str, detail: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.details.setdefault(kind, detail[:400])

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def function_of(op: Any) -> Callable[..., Any]:
    """Weft's function with the name of an operator; a method of the tensor, if there is none."""
    adapter = _ADAPTERS.get(op.full_name)
    if adapter is not None and (op.name not in {"H", "mH"} or hasattr(weft.Tensor, op.name)):
        return adapter
    found: Any = weft
    for part in op.name.split("."):
        found = getattr(found, part, None)
        if found is None:
            break
    if callable(found) and not isinstance(found, weft.dtype):
        return found
    for name in (op.name, f"{op.name}_"):
        if "." not in name and hasattr(weft.Tensor, name):
            in_place = name.endswith("_") and not name.startswith("__")
            return lambda x, *args, **kwargs: getattr(x.clone() if in_place else x, name)(
                *args, **kwargs)
    raise NotFound(op.name)


def names() -> dict[str, list[Any]]:
    """The operators of each name that are torch's public functions."""
    found: dict[str, list[Any]] = {}
    for full, op in operators().items():
        if not any(full.startswith(p) for p in _NOT_OF_WEFT):
            found.setdefault(op.name, []).append(op)
    return found


def exists(op: Any) -> bool:
    try:
        function_of(op)
    except (NotFound, AttributeError):
        return False
    return True


def run_operator(name: str, dtype: str, count: int, *, gradients: bool) -> Outcome:
    """The first ``count`` samples of an operator."""
    op = operators()[name]
    outcome = Outcome(name, dtype, gradients, exists(op))
    if not outcome.exists or not op.supports_dtype(DTYPES[dtype], "cpu"):
        return outcome
    gradients = gradients and supports(op, dtype, gradients=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sample in samples(op, dtype, count, gradients=gradients):
            _run_sample(op, sample, outcome, gradients=gradients)
    return outcome


def _run_sample(op: Any, sample: Sample, outcome: Outcome, *, gradients: bool) -> None:
    given = sample.fresh()
    try:
        expected, slopes = opinfo_run._evaluated(sample.call, given, gradients=gradients)
        expected = [e for e in expected if e is not None]
    except Exception:  # noqa: BLE001 - torch itself refuses its sample
        return
    outcome.samples += 1
    stage = ["call"]
    try:
        got, got_slopes = _weft(op, sample, stage, gradients=gradients)
    except Exception as error:  # noqa: BLE001 - any failure is one line of the report
        outcome.fail(_kind(error, given, stage[0]), f"{sample.name}: {opinfo_run._one_line(error)}")
        return
    problem = _difference(op, sample, (got, expected), (got_slopes, slopes), gradients=gradients)
    if problem is None:
        outcome.agree += 1
    else:
        outcome.fail(problem[0], f"{sample.name}: {problem[1]}")


def _difference(op: Any, sample: Sample, results: tuple[Any, Any], slopes: tuple[Any, Any], *,
                gradients: bool) -> tuple[str, str] | None:
    got, expected = results
    count = max(len(slopes[0]), len(slopes[1]))
    slopes = (slopes[0] or [None] * count, slopes[1] or [None] * count)
    if op.name in opinfo_run._UNDEFINED or _draws(op, sample):
        got, expected = [opinfo_run._like(r) for r in got], [opinfo_run._like(r) for r in expected]
        slopes = ([], [])
    try:
        opinfo_run._compare(got, expected, opinfo_run._indices_of(op.name), sample.tensors)
    except Exception as error:  # noqa: BLE001 - not comparable is not equal
        if not opinfo_run._is_exact(sample, got, expected, gradients=False):
            return "wrong", opinfo_run._one_line(error)
    try:
        opinfo_run._compare(*slopes)
    except Exception as error:  # noqa: BLE001
        if not opinfo_run._is_exact(sample, [*got, *slopes[0]], [*expected, *slopes[1]],
                                    gradients=gradients):
            return "gradient", opinfo_run._one_line(error)
    return None


def _draws(op: Any, sample: Sample) -> bool:
    """Whether the results depend on random numbers."""
    if op.name.endswith(("_attention", "_attention_forward")):  # their only number is a rate
        return any(isinstance(leaf, float) and leaf for leaf in sample.leaves)
    return any(part in op.name for part in _RANDOM)


def _kind(error: Exception, given: list[torch.Tensor], stage: str) -> str:
    text = str(error)
    if isinstance(error, TypeError) and any(
            part in text for part in ("argument", "keyword", "multiple values")):
        return "keyword"
    if stage == "backward":
        return "gradient"
    if any(t.ndim == 0 for t in given):
        return "zero-dimensional"
    return "boolean" if any(t.dtype == torch.bool for t in given) else "other"


def _weft(op: Any, sample: Sample, stage: list[str], *, gradients: bool
          ) -> tuple[list[Any], list[Any]]:
    """The results and slopes of weft, as tensors of torch."""
    seed_all()
    function = function_of(op)
    moving: list[Any] = []
    args = [_to_weft(leaf, moving) for leaf in sample.leaves]
    first, rest, named = pytree.tree_unflatten(args, sample.spec)
    found = function(first, *rest, **named)
    results = [r for r in pytree.tree_leaves(_plain(found)) if r is not None]
    shown = [_to_torch(r) for r in results]
    stage[0] = "backward"
    slopes: list[Any] = [None] * len(moving) if gradients else []
    ends = [r for r in results if isinstance(r, weft.Tensor) and r.requires_grad]
    if gradients and moving and ends:
        directions = [_to_weft(opinfo_run._direction(_to_torch(r)), []) for r in ends]
        weft.autograd.backward(ends, directions)
        slopes = [None if m.grad is None else _to_torch(m.grad) for m in moving]
    return shown, slopes


def _plain(value: Any) -> Any:
    """Named tuples and other sequences as plain lists."""
    if isinstance(value, weft.Size):
        return list(value)
    return [_plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _to_weft(leaf: Any, moving: list[Any]) -> Any:
    if isinstance(leaf, torch.Tensor):
        plain = leaf.detach().resolve_conj().resolve_neg().contiguous()
        if plain.dtype == torch.bfloat16:
            made = weft.tensor(plain.float().numpy(), dtype="bfloat16")
        else:
            made = weft.tensor(plain.numpy())
        if leaf.requires_grad:
            moving.append(made.requires_grad_())
        return made
    if isinstance(leaf, torch.dtype):
        return getattr(weft, str(leaf).removeprefix("torch."), None) or weft.bool_
    if isinstance(leaf, (torch.device, torch.memory_format, torch.layout)):
        return str(leaf)
    if isinstance(leaf, torch.nn.Module):
        return getattr(weft.nn, type(leaf).__name__)()
    if callable(leaf) and getattr(leaf, "__module__", "").startswith("torch"):
        return getattr(weft.nn.functional, leaf.__name__)
    return leaf


def _to_torch(value: Any) -> Any:
    if not isinstance(value, weft.Tensor):
        return value
    array = value.detach().numpy()
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype("float32")).to(torch.bfloat16)
    return torch.from_numpy(array.copy())


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", help="names, or parts of names with *, separated by commas")
    parser.add_argument("--samples", type=int, default=10, help="how many of each operator")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--dtype", help="element types, separated by commas")
    parser.add_argument("--output", type=Path, help="a file for the details, a line of JSON each")
    parser.add_argument("--missing", action="store_true", help="list the names that weft lacks")
    parser.add_argument("--quiet", action="store_true", help="counts alone")
    return parser.parse_args()


def _jobs(options: argparse.Namespace) -> list[tuple[str, str, bool]]:
    patterns = options.ops.split(",") if options.ops else ["*"]
    chosen = [op.full_name for ops in names().values() for op in ops
              if any(fnmatchcase(op.full_name, p) for p in patterns) and exists(op)]
    dtypes = options.dtype.split(",") if options.dtype else None
    wanted = CONFIGURATIONS if dtypes is None else tuple(
        (d, DTYPES[d].is_floating_point or DTYPES[d].is_complex) for d in dtypes)
    return [(n, d, g) for n in chosen for d, g in wanted]


def report(results: list[dict[str, Any]], excluded: dict[str, str], *, quiet: bool) -> int:
    """Print the counts; the number of failures that are not excluded."""
    kinds: Counter[str] = Counter()
    unexplained = 0
    for r in results:
        kinds.update(r["kinds"])
        for kind, number in r["kinds"].items():
            if kind == "complex" or f"{kind} {r['operator']}" in excluded:
                continue
            unexplained += number
            if not quiet:
                print(f"{kind:16} {r['operator']} {r['dtype']} x{number}: {r['details'][kind]}")
    total, agree = sum(r["samples"] for r in results), sum(r["agree"] for r in results)
    print(f"{total} samples, {agree} agree; "
          + ", ".join(f"{kinds[k]} {k}" for k in KINDS))
    return unexplained


def main() -> int:
    from tests.torch.opinfo import run_many

    options = _parsed()
    known = names()
    have = {n for n, ops in known.items() if any(map(exists, ops))}
    if options.missing:
        print("missing:", " ".join(sorted(set(known) - have)))
    results = run_many(_jobs(options), options.samples, options.jobs, options.output,
                       runner="tests.torch.opinfo_eager")
    print(f"{len(have)} of {len(known)} names exist")
    return 1 if report(results, load_lines(EXCLUSIONS), quiet=options.quiet) else 0


if __name__ == "__main__":
    sys.exit(main())
