"""Compiled models that run on GPUs or on simulated devices."""

from __future__ import annotations

from weft.compiler.compiled_model import CompiledModel
from weft.compiler.open_model import CallsPython
from weft.runtime import CompiledModule
from weft.runtime.devices.cuda.module import DeviceModule
from weft.runtime.devices.sim.module import LaneModule
from weft.runtime.sized_module import SizedModule


class DeviceModel(CompiledModel, DeviceModule):
    """A compiled model that runs on a GPU, with parts on the host."""


class LaneModel(CompiledModel, LaneModule):
    """A compiled model that runs on simulated devices."""


class PythonCallingDeviceModel(CallsPython, DeviceModel):
    """A ``DeviceModel`` that calls Python functions."""


class PythonCallingLaneModel(CallsPython, LaneModel):
    """A ``LaneModel`` that calls Python functions."""


# As the table of ``open_model``.
DEVICE_MODELS: dict[type[CompiledModule | SizedModule],
                    tuple[type[CompiledModel], type[CompiledModel]]] = {
    DeviceModule: (DeviceModel, PythonCallingDeviceModel),
    LaneModule: (LaneModel, PythonCallingLaneModel),
}
