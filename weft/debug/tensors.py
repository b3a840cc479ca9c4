"""The inner tensors of a model, and their values in several evaluations."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

import weft
from weft.compiler.extensions import Extensions, PassesLike, TirPassesLike
from weft.compiler.options import CompileOptions
from weft.frontend.source import ModelLike, open_source
from weft.ir import IRModule, Span, TensorType, input_names, is_static, post_order
from weft.ir.expr import Constant, Expr, Tuple, Var
from weft.support.errors import InvalidInputError, OptionError
from weft.target import Target
from weft.transform.analysis.reference import evaluate
from weft.transform.passes.extract_subgraph import extract_subgraph, tensors_of

Values: TypeAlias = dict[str, np.ndarray]

REFERENCE, ONNXRUNTIME = "reference", "onnxruntime"


class ModelTensors:
    """A model with the names of its inner tensors, in the order in which they are computed.

    A tensor with several names (a torch module and its last node) has the most specific one.
    ``passes`` and ``tir_passes`` are those of the user, as for ``weft.compile``. Raises what
    importing the model raises, and ``InvalidInputError`` for inputs that do not fit.
    """

    def __init__(self, model: ModelLike, inputs: Mapping[str, Any] | Sequence[Any], *,
                 example_inputs: Any = None, passes: PassesLike = (),
                 tir_passes: TirPassesLike = ()) -> None:
        extensions = Extensions.make(passes, (), tir_passes)
        self.options = CompileOptions.make(extensions=extensions)
        self.source = open_source(model, example_inputs, self.options)
        self._extensions: dict[str, Any] = {"passes": passes, "tir_passes": tir_passes}
        first = self.source.import_whole(self.options)
        self.feeds = _feeds(input_names(first), inputs)
        shapes = {name: value.shape for name, value in self.feeds.items()}
        if not all(is_static(param.checked_type) for param in first["main"].params
                   if param.checked_type is not None):
            self.options = self.options.at(shapes)
            first = self.source.import_whole(self.options)
        self.module: IRModule = first
        self._named = _ordered(tensors_of(first), by_path=bool(first.named))
        self.names = [name for name, value in self._named.items() if not isinstance(value, Var)]

    def expression(self, name: str) -> Expr:
        """The expression of a tensor."""
        return self._named[name]

    def span(self, name: str) -> Span | None:
        """Where the model computes a tensor."""
        return self._named[name].span

    def values(self, by: str = "weft", names: Sequence[str] | None = None) -> Values:
        """The values of the tensors ``names`` (by default all) in one evaluation.

        ``by`` is ``"weft"`` (compiled code of this machine), a text of a target, ``"O0"`` to
        ``"O3"`` (compiled code at an optimisation level), ``"reference"`` (the interpreter over
        NumPy) or ``"onnxruntime"``. Raises ``OptionError`` for others, and for models that
        onnxruntime cannot take.
        """
        wanted = list(self.names if names is None else names)
        if by == REFERENCE:
            return self._evaluated(wanted)
        if by == ONNXRUNTIME:
            return self._by_onnxruntime(wanted)
        return self._compiled(wanted, by)

    def part(self, fetches: Sequence[str]) -> IRModule:
        """The program that computes these tensors from the inputs."""
        return extract_subgraph(self.module, fetches)

    def _given(self, program: IRModule) -> list[np.ndarray]:
        return [self.feeds[name] for name in input_names(program)]

    def _evaluated(self, names: Sequence[str]) -> Values:
        program = self.part(names)
        return _by_name(names, evaluate(program, self._given(program)))

    def _compiled(self, names: Sequence[str], by: str) -> Values:
        program = self.part(names)
        target: Target | str | None = None
        level = 3
        if by in ("O0", "O1", "O2", "O3"):
            level = int(by[1])
        elif by != "weft":
            target = by
        made = weft.compile(program, target=target, opt_level=level, **self._extensions)
        return _by_name(names, made(*self._given(program)))

    def _by_onnxruntime(self, names: Sequence[str]) -> Values:
        import onnx

        proto = self.source.as_onnx()
        if proto is None:
            raise OptionError("onnxruntime takes ONNX models only", got=type(self.source).__name__)
        if importlib.util.find_spec("onnxruntime") is None:
            raise OptionError("a comparison with onnxruntime needs the package",
                              help="pip install onnxruntime")
        known = {name for node in proto.graph.node for name in node.output}
        for name in names:
            if name in known and name not in {value.name for value in proto.graph.output}:
                proto.graph.output.append(onnx.ValueInfoProto(name=name))
        wanted = [name for name in names if name in known]
        try:
            found = _onnxruntime_results(proto, wanted, self.feeds)
        except Exception as error:  # noqa: BLE001 - its errors share no base class
            raise OptionError("onnxruntime cannot run the model", got=str(error)) from None
        return {name: np.asarray(value) for name, value in zip(wanted, found, strict=True)}


# The newest version of the file format that onnxruntime is sure to read.
_IR_VERSION = 10


def _onnxruntime_results(proto: Any, names: Sequence[str], feeds: Values) -> list[Any]:
    """The tensors ``names``, computed node by node as the model has them."""
    import onnxruntime

    proto.ir_version = min(proto.ir_version, _IR_VERSION)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    taken = {port.name for port in session.get_inputs()}
    return list(session.run(list(names), {k: v for k, v in feeds.items() if k in taken}))


def _feeds(names: Sequence[str], inputs: Mapping[str, Any] | Sequence[Any]) -> Values:
    given = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=False))
    missing = [name for name in names if name not in given]
    unknown = [name for name in given if name not in names]
    if missing or unknown:
        raise InvalidInputError("the inputs do not fit the model", expected=", ".join(names),
                                got=", ".join(given) or "nothing")
    return {name: np.asarray(given[name]) for name in names}


def _ordered(named: Mapping[str, Expr], *, by_path: bool) -> dict[str, Expr]:
    """One name for each tensor, in the order of execution; constants are left out.

    Of the names of an imported model the one with the longest path is kept, otherwise the first.
    """
    best: dict[Expr, str] = {}
    for name, value in named.items():
        if isinstance(value, Constant) or not isinstance(value.checked_type, TensorType):
            continue
        if value not in best or (by_path and name.count(".") > best[value].count(".")):
            best[value] = name
    order = post_order(Tuple(tuple(best)))
    return {best[value]: value for value in order if value in best}


def _by_name(names: Sequence[str], results: Any) -> Values:
    found = results if isinstance(results, tuple) else (results,)
    return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}
