"""The backend API of the ``onnx`` package: ``weft.onnx_backend.prepare(model).run(inputs)``.

ONNX graphs may compute shapes from run-time inputs (a ``Reshape`` target, ``ReduceSum`` axes). A
prepared model that needs such values is compiled when they arrive, once for each combination.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from weft.compiler.api import compile as compile_model
from weft.compiler.compiled_model import CompiledModel
from weft.support.errors import InvalidInputError, UnsupportedModelError

# Shapes, axes, sizes and ratios: what decides the shapes of other tensors is short.
MAX_SHAPE_ELEMENTS = 64
_Bound = tuple[tuple[int, bytes], ...]


class WeftRep(BackendRep):
    """A model that is ready to run; compiled at once where its shapes do not depend on inputs."""

    def __init__(self, model: ModelProto, **options: Any) -> None:
        super().__init__()
        self._model = model
        self._options = options
        stored = {t.name for t in model.graph.initializer}
        self._inputs = [i for i in model.graph.input if i.name not in stored]
        self._outputs = [o.name for o in model.graph.output]
        self._compiled: dict[_Bound, CompiledModel] = {}
        self._needs_values: UnsupportedModelError | None = None
        try:
            self._compiled[()] = self._compile(model)
        except UnsupportedModelError as error:
            if not self._inputs:
                raise
            self._needs_values = error

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs for one value for each input, in order; they can be looked up by name too.

        Raises ``InvalidInputError`` and, where the values were needed to compile, what
        ``weft.compile`` raises.
        """
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(values) > len(self._inputs):
            raise InvalidInputError("the model takes fewer inputs", got=str(len(values)),
                                    expected=str(len(self._inputs)))
        arrays = [np.asarray(v) for v in values]
        bound = [] if self._needs_values is None else _shape_like(arrays)
        module = self._module_for(arrays, bound)
        rest = [a for i, a in enumerate(arrays) if i not in bound]
        result = module(*rest)
        outputs = result if isinstance(result, tuple) else (result,)
        named: tuple[Any, ...] = namedtupledict("Outputs", self._outputs)(*outputs)
        return named

    def _module_for(self, arrays: Sequence[np.ndarray], bound: Sequence[int]) -> CompiledModel:
        key = tuple((i, arrays[i].tobytes() + str(arrays[i].shape).encode()) for i in bound)
        if key not in self._compiled:
            if self._needs_values is not None and not bound:
                raise self._needs_values
            self._compiled[key] = self._compile(self._with_constants(arrays, bound))
        return self._compiled[key]

    def _with_constants(self, arrays: Sequence[np.ndarray], bound: Sequence[int]) -> ModelProto:
        """The model with the values of some inputs as initializers."""
        model = ModelProto()
        model.CopyFrom(self._model)
        names = {self._inputs[i].name for i in bound}
        kept = [i for i in model.graph.input if i.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        for i in bound:
            name = self._inputs[i].name
            model.graph.initializer.append(numpy_helper.from_array(arrays[i], name))
        return model

    def _compile(self, model: ModelProto) -> CompiledModel:
        compiled = compile_model(model, **self._options)
        if not isinstance(compiled, CompiledModel):
            raise InvalidInputError("the backend runs models on this machine alone",
                                    help="leave out the option 'target'")
        return compiled


def _shape_like(arrays: Sequence[np.ndarray]) -> list[int]:
    return [i for i, a in enumerate(arrays) if a.ndim <= 1 and a.size <= MAX_SHAPE_ELEMENTS]


class WeftBackend(Backend):
    """``onnx.backend.base.Backend`` over ``weft.compile``."""

    @classmethod
    def is_compatible(
        cls, model: ModelProto, device: str = "CPU", **_: Any
    ) -> bool:
        """Whether a model may be prepared; whether weft has all its operators, ``prepare`` says."""
        del model  # the interface asks with a model; the answer needs compiling it
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> WeftRep:
        """Compile ``model``; ``options`` are those of ``weft.compile``.

        Raises what ``weft.compile`` raises, but shapes that depend on inputs wait for ``run``.
        """
        if not cls.supports_device(device):
            raise InvalidInputError("the backend has no such device", expected="CPU", got=device)
        return WeftRep(model, **options)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """The outputs of one node; ``opset_version`` among ``options`` says how to read it."""
        opset = int(options.pop("opset_version", onnx.defs.onnx_opset_version()))
        arrays = [np.asarray(v) for v in inputs]
        names = [n for n in node.input if n]
        values = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        results = [
            helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
            for name in node.output if name
        ]
        for result, info in zip(results, outputs_info or (), strict=False):
            result.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(info[0]))
        graph = helper.make_graph([node], "node", values, results)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = min(model.ir_version, onnx.IR_VERSION)
        return cls.prepare(model, device, **options).run(arrays)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """``CPU`` alone."""
        return Device(device).type == DeviceType.CPU


is_compatible = WeftBackend.is_compatible
prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
run_node = WeftBackend.run_node
supports_device = WeftBackend.supports_device
