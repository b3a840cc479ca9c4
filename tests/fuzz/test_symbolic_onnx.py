"""Random ONNX graphs with symbols for the sizes of their inputs.

Sizes above 1 become symbols, equal sizes the same one. A graph whose attributes and constants fix
its sizes is refused; any other gives the values of the graph with fixed sizes.
"""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.fuzz.onnx_peers import differing
from tests.fuzz.random_onnx import described, draw_graph, outputs_of
from tests.unit.frontend.onnx.test_onnx_symbolic_cases import with_symbols
from weft.frontend.onnx import from_onnx
from weft.ir.module import IRModule
from weft.ir.substitution import substitute_symbols
from weft.support.errors import InvalidModelError, UnsupportedModelError, WeftError
from weft.transform.analysis.reference import evaluate

SEEDS = range(60)
MOST_NODES = 6
# Of the graphs, so many are imported with symbols.
MIN_SHARE = 0.4


def values_of(module: IRModule, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        result = evaluate(module, [feeds[n] for n in module.attrs["input_names"]])
    return list(result) if isinstance(result, tuple) else [result]


def compared(seed: int, *, compiled: bool) -> bool:
    """Whether the graph of a seed is imported with symbols; fails where the values differ."""
    graph = draw_graph(seed, MOST_NODES)
    outputs = outputs_of(graph)
    if not outputs:
        return False
    fixed = graph.model(outputs)
    feeds = {v.name: graph.array(v.name) for v in fixed.graph.input}
    model, sizes = with_symbols(fixed)
    if not sizes:
        return False
    try:
        general, expected = from_onnx(model), values_of(from_onnx(fixed), feeds)
    except (InvalidModelError, UnsupportedModelError):
        return False
    if compiled:
        program = weft.compile(model)
        assert program.is_dynamic
        try:
            actual = program.run(None, feeds)
        except WeftError as error:
            pytest.fail(f"seed {seed}: {error}\n{described(graph, outputs)}")
    else:
        actual = values_of(substitute_symbols(general, sizes), feeds)
    for a, e in zip(actual, expected, strict=True):
        text = differing(np.asarray(a), e)
        assert not text, f"seed {seed}: {text}\n{described(graph, outputs)}"
    return True


def test_symbols_give_the_values_of_fixed_sizes() -> None:
    imported = [compared(seed, compiled=False) for seed in SEEDS]
    assert sum(imported) >= MIN_SHARE * len(imported)


@pytest.mark.sample(0.3, 2)
@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_compiled_programs_for_all_sizes(first: int) -> None:
    compiled = [compared(seed, compiled=True) for seed in range(first, first + 10)]
    assert any(compiled)
