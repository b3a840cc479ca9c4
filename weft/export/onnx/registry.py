"""Writers of operators: what an operator is in ONNX."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.export.writers import Value, Writers

if TYPE_CHECKING:
    from weft.export.onnx.call import CallWriter

WRITERS: Writers[CallWriter] = Writers("ONNX", "weft.export.onnx.ops")
writes, writer_of = WRITERS.writes, WRITERS.of


def renamed(operator: str, onnx: str, *, upcast: bool = False, **attributes: Any) -> None:
    """Register a writer that emits one node ``onnx`` with the arguments of the call.

    With ``upcast``, integers that runtimes do not compute with are computed as wider ones.
    """

    def write(c: CallWriter) -> Value:
        if upcast:
            return c.upcast(onnx, *c.inputs, **attributes)
        return c.emit(onnx, *c.inputs, **attributes)

    writes(operator)(write)
