"""``weft.quantize``: a model in fewer bits, with a report of what each layer lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from weft.ir.module import IRModule
from weft.quantization.options import QuantizationOptions
from weft.quantization.report import QuantizationReport
from weft.quantization.samples import samples_of
from weft.quantization.schemes import scheme_named
from weft.support import progress
from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.frontend.source import Examples, ModelLike


@dataclass(frozen=True, eq=False, repr=False)
class QuantizedModule(IRModule):
    """A typed program, which ``weft.compile`` takes, and the ``report`` of its quantisation."""

    report: QuantizationReport = field(default_factory=lambda: QuantizationReport("none"))


def quantize(model: ModelLike, data: Any = None, *, scheme: str = "int4",
             inputs: Mapping[str, Sequence[object]] | None = None,
             example_inputs: Examples = None, **options: Any) -> QuantizedModule:
    """The program of ``model`` with weights, or whole layers, in fewer bits.

        small = weft.quantize("model.onnx", scheme="int4")
        print(small.report)
        mod = weft.compile(small)

    ``model``, ``inputs`` and ``example_inputs`` are those of ``weft.compile``. ``data`` is
    calibration data: batches of inputs, each a mapping by name, a tuple in the order of the
    inputs, or the array of a model with one input. ``scheme`` names a row of docs/quantization.md,
    ``options`` are fields of ``weft.quantization.QuantizationOptions``, such as ``keep`` and
    ``max_error``.

    Raises ``OptionError`` for unknown schemes and options and for schemes that need data,
    ``InvalidInputError`` for data that does not fit, and what importing the model raises.
    """
    from weft.compiler.transformations.parameters import imported

    found, wanted = scheme_named(scheme), QuantizationOptions.make(options)
    with progress.work():
        module = imported(model, inputs, example_inputs)
        after, layers = found.apply(module, samples_of(module, data), wanted)
    made = {f.name: getattr(after, f.name) for f in fields(IRModule)}
    return QuantizedModule(**made, report=QuantizationReport(scheme, tuple(layers)))
