"""The weights of a model by the names that it gives them, and a model with others.

Weights are the constants that a front end has read from stored tensors (``Span.tensor``). What it
has read as a number of the program (the shape of a ``Reshape``) is no constant, so no weight, and
neither are tensors of bool and of integers of more than 8 bits, which are mostly positions.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

import numpy as np

from weft.frontend.common.typed import keeping_weights
from weft.frontend.source import Declared, ImportOptions, Shapes, Source
from weft.ir import Constant, Expr, IRModule, Tuple, infer_expr, infer_type, post_order
from weft.support.errors import WeftError
from weft.transform.normal_form.alpha import fresh_copy

_QUANTIZED = (np.int8, np.uint8)


def import_with_names(import_: Callable[[], IRModule]) -> IRModule:
    """What an import gives if no weight is folded while it runs, which a converter may need."""
    with contextlib.suppress(WeftError), keeping_weights():
        return import_()
    return import_()


def weights_of(mod: IRModule) -> dict[str, np.ndarray]:
    """The arrays by name, in the order of their first use.

    A name of several different tensors (of bodies of control flow, or the two parts of a complex
    one) is no weight.
    """
    found: dict[str, np.ndarray] = {}
    unclear: set[str] = set()
    for function in mod.functions.values():
        for node in post_order(function):
            name = _name(node)
            if name is None or not isinstance(node, Constant):
                continue
            known = found.setdefault(name, node.data)
            if known is not node.data and not _are_equal(known, node.data):
                unclear.add(name)
    return {name: array for name, array in found.items() if name not in unclear}


def _name(node: Expr) -> str | None:
    """The name of a weight; ``None`` for other nodes.

    Numbers that programs index with are part of a program, which was checked for their values.
    """
    if not isinstance(node, Constant) or node.span is None \
            or (node.data.dtype.kind in "biu" and node.data.dtype not in _QUANTIZED):
        return None
    return node.span.tensor


def _are_equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape \
        and one.tobytes() == other.tobytes()


def with_weights(mod: IRModule, values: Mapping[str, np.ndarray]) -> IRModule:
    """The module with other arrays for weights; names that it lacks are ignored."""
    given: dict[Expr, Expr] = {}
    for function in mod.functions.values():
        for node in post_order(function):
            name = _name(node)
            if name is not None and name in values:
                given[node] = Constant(values[name], span=node.span)
    for name, function in mod.functions.items():
        parts = (function.body, *(mod.named.values() if name == "main" else ()))
        whole = fresh_copy(infer_expr(Tuple(parts), trust=True), given)
        assert isinstance(whole, Tuple)
        mod = mod.with_function(name, function.replace(body=whole.fields[0]))
        if name == "main":
            mod = dataclasses.replace(
                mod, named=dict(zip(mod.named, whole.fields[1:], strict=True)))
    return infer_type(mod)


class Reweighted(Source):
    """Another source with other values for weights, by name.

    Nothing of it is kept in the cache but kernels, which do not depend on the values.
    """

    def __init__(self, source: Source, values: Mapping[str, np.ndarray]) -> None:
        if isinstance(source, Reweighted):
            values = {**source.values, **values}
            source = source.source
        super().__init__(module=source.module)
        self.source, self.values = source, values
        self.kind, self.assumes_ranges = source.kind, source.assumes_ranges
        self.state, self.is_cut = source.state, source.is_cut

    def import_whole(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        return with_weights(import_with_names(
            partial(self.source.import_whole, options)), self.values)

    def import_module(self, options: ImportOptions) -> IRModule:
        """See ``Source``."""
        return with_weights(import_with_names(
            partial(self.source.import_module, options)), self.values)

    def import_part(self, options: ImportOptions, outputs: Sequence[str] | None, inputs: Shapes
                    ) -> IRModule:
        """See ``Source``."""
        return with_weights(import_with_names(
            partial(self.source.import_part, options, outputs, inputs)), self.values)

    def digest(self) -> str:
        """See ``Source``."""
        return "its weights were set after it was compiled"

    def signature(self, options: ImportOptions) -> tuple[Declared, Declared] | None:
        """See ``Source``."""
        return self.source.signature(options)

    def initial_values(self) -> Mapping[str, np.ndarray]:
        """See ``Source``."""
        return self.source.initial_values()

    def held(self) -> AbstractContextManager[None]:
        """See ``Source``."""
        return self.source.held() if self.source.file is not None else contextlib.nullcontext()

    def check_unchanged(self) -> None:
        """See ``Source``."""
        self.source.check_unchanged()
