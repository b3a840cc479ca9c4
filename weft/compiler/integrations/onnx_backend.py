"""The backend API of the ``onnx`` package: ``weft.onnx_backend.prepare(model).run(inputs)``.

ONNX graphs may compute shapes from run-time inputs (a ``Reshape`` target, ``ReduceSum`` axes). If a
prepared model needs such values, it is compiled when they arrive, once for each combination, with
the values as constants; ``WeftRep.bound_inputs`` names these inputs.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from weft.compiler.api import compile as compile_model
from weft.frontend.onnx import from_onnx
from weft.runtime.executable import Executable
from weft.support.config import config
from weft.support.errors import InvalidInputError, UnsupportedModelError

# Only inputs up to this size are bound: shapes, axes, sizes and ratios are short.
MAX_SHAPE_ELEMENTS = 64
_Key: TypeAlias = tuple[tuple[tuple[int, bytes], ...], tuple[tuple[str, str], ...]]
_Value: TypeAlias = np.ndarray | list[np.ndarray] | None


class WeftRep(BackendRep):
    """A prepared model; compiled at once if its shapes do not depend on the values of inputs.

    Programs for values of inputs or lengths of sequences are kept in a least-recently-used cache of
    ``WEFT_DYNAMIC_PROGRAMS`` entries.
    """

    def __init__(self, model: ModelProto, **options: Any) -> None:
        super().__init__()
        self._model = model
        self._options = options
        stored = {t.name for t in model.graph.initializer}
        self._inputs = [i for i in model.graph.input if i.name not in stored]
        self._compiled: OrderedDict[_Key, Executable] = OrderedDict()
        self._limit = config.dynamic_programs
        self._lock = threading.Lock()
        self._needs_values = False
        self._is_plain = all(_kind(i) == "tensor_type" for i in self._inputs)
        if self._is_plain:
            try:
                self._compiled[(), ()] = self._compile(model, {})
            except UnsupportedModelError:
                if not self._inputs:
                    raise
                self._needs_values = True

    @property
    def bound_inputs(self) -> tuple[str, ...]:
        """The inputs whose values are constants in the cached programs, in order.

        Empty for a model that was compiled as given, whose program takes any values.
        """
        with self._lock:
            numbers = {i for fixed, _ in self._compiled for i, _ in fixed}
        return tuple(self._inputs[i].name for i in sorted(numbers))

    @property
    def programs(self) -> int:
        """The number of cached programs."""
        with self._lock:
            return len(self._compiled)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs, as a named tuple, for one value per input.

        A sequence is a list of arrays, an empty optional ``None``. Raises ``InvalidInputError``
        and, if the program is compiled for these values, what ``weft.compile`` raises.
        """
        values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
        if len(values) > len(self._inputs):
            raise InvalidInputError("the model takes fewer inputs", got=str(len(values)),
                                    expected=str(len(self._inputs)))
        given = [_as_value(v) for v in values]
        if not self._needs_values:
            try:
                return self._run(given, [])
            except UnsupportedModelError:
                self._needs_values = True
        return self._run(given, _shape_like(given))

    def _run(self, values: Sequence[_Value], bound: Sequence[int]) -> tuple[Any, ...]:
        rest = {i: v for i, v in enumerate(values) if i not in bound}
        module = self._module_for(values, bound)
        arrays = [a for v in rest.values() for a in (v if isinstance(v, list) else [v])
                  if a is not None]
        result = module(*arrays)
        flat = result if isinstance(result, tuple) else (result,)
        names = [spec.name for spec in module.outputs]
        outputs = _gathered(self._model.graph.output, dict(zip(names, flat, strict=True)))
        named: tuple[Any, ...] = namedtupledict(
            "Outputs", [o.name for o in self._model.graph.output])(*outputs)
        return named

    def _module_for(self, values: Sequence[_Value], bound: Sequence[int]) -> Executable:
        """The program for these bound values and shapes within sequences, compiled at first use."""
        shapes = {} if self._is_plain else {
            self._inputs[i].name: _shapes_of(v) for i, v in enumerate(values) if i not in bound
        }
        fixed = tuple((i, np.asarray(values[i]).tobytes() + str(np.shape(values[i])).encode())  # type: ignore[arg-type]
                      for i in bound)
        key = (fixed, tuple(sorted((name, str(shape)) for name, shape in shapes.items())))
        with self._lock:
            found = self._compiled.get(key)
            if found is not None:
                self._compiled.move_to_end(key)
                return found
        model = self._with_constants(values, bound) if bound else self._model
        made = self._compile(model, shapes)
        with self._lock:
            self._compiled[key] = made
            while len(self._compiled) > self._limit:
                self._compiled.popitem(last=False)
        return made

    def _with_constants(self, values: Sequence[_Value], bound: Sequence[int]) -> ModelProto:
        """The model with the values of some inputs as initializers."""
        model = ModelProto()
        model.CopyFrom(self._model)
        names = {self._inputs[i].name for i in bound}
        kept = [i for i in model.graph.input if i.name not in names]
        del model.graph.input[:]
        model.graph.input.extend(kept)
        for i in bound:
            array = np.asarray(values[i])
            model.graph.initializer.append(numpy_helper.from_array(array, self._inputs[i].name))
        return model

    def _compile(self, model: ModelProto, shapes: Mapping[str, Any]) -> Executable:
        source = from_onnx(model, inputs=shapes) if shapes else model
        compiled = compile_model(source, **self._options)
        if not compiled.runs_here:
            raise InvalidInputError("the ONNX backend only runs models on this machine",
                                    help="leave out the option 'target'")
        return compiled


def _kind(value: ValueInfoProto) -> str | None:
    return value.type.WhichOneof("value")


def _as_value(value: Any) -> _Value:
    if value is None or isinstance(value, np.ndarray):
        return value
    return [np.asarray(v) for v in value] if isinstance(value, list) else np.asarray(value)


def _shapes_of(value: _Value) -> Any:
    """The shape of an input in the form that ``from_onnx`` takes."""
    if value is None:
        return None
    return [v.shape for v in value] if isinstance(value, list) else value.shape


def _gathered(outputs: Sequence[ValueInfoProto], found: Mapping[str, Any]) -> list[Any]:
    """The outputs by name; the tensors ``y[0]``, ``y[1]``, .. of a sequence become a list."""
    result: list[Any] = []
    for value in outputs:
        if value.name in found:
            result.append(found[value.name])
            continue
        indices = itertools.count()
        names = itertools.takewhile(found.__contains__, (f"{value.name}[{i}]" for i in indices))
        items = [found[name] for name in names]
        result.append(items if items or _kind(value) == "sequence_type" else None)
    return result


def _shape_like(values: Sequence[_Value]) -> list[int]:
    return [i for i, v in enumerate(values)
            if isinstance(v, np.ndarray) and v.ndim <= 1 and v.size <= MAX_SHAPE_ELEMENTS]


class WeftBackend(Backend):
    """``onnx.backend.base.Backend`` over ``weft.compile``."""

    @classmethod
    def is_compatible(
        cls, model: ModelProto, device: str = "CPU", **_: Any
    ) -> bool:
        """Whether the device is supported; ``prepare`` reports unsupported operators."""
        del model  # only compiling it could tell more
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **options: Any) -> WeftRep:
        """Compile ``model``; ``options`` are those of ``weft.compile``.

        Raises what ``weft.compile`` raises, except for shapes that depend on the values of inputs:
        those are left to ``run``.
        """
        if not cls.supports_device(device):
            raise InvalidInputError("unknown device", expected="CPU", got=device)
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
        """The outputs of one node, of the operator set ``opset_version`` in ``options``."""
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
        """Whether ``device`` is a CPU."""
        return Device(device).type == DeviceType.CPU


is_compatible = WeftBackend.is_compatible
prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
run_node = WeftBackend.run_node
supports_device = WeftBackend.supports_device
