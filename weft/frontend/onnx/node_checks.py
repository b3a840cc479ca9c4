"""Checks of nodes against ONNX's schemas of operators.

A table accepts most nodes (``schemas``); ``onnx``, whose import takes longer than all else that a
small model needs, judges the others and words the errors.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from weft.frontend.onnx.checks import shortened
from weft.frontend.onnx.protos import AttributeProto, GraphProto, ModelProto, NodeProto
from weft.frontend.onnx.registry import DEFAULT_DOMAIN
from weft.frontend.onnx.schemas import accepts, newest_known
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError

_CHECKER_LIMIT_BYTES = 64 * 2**20


@dataclass(eq=False)
class Schemas:
    """The schemas of the package ``onnx``, which is imported where the table does not decide.

    Users can register schemas, but not before they import ``onnx``: then it is asked itself.
    """

    is_imported_here: bool = False

    def package(self) -> Any:
        """``onnx``."""
        self.is_imported_here = self.is_imported_here or "onnx" not in sys.modules
        import onnx

        return onnx

    def are_of_user(self) -> bool:
        """Whether the program may have changed the schemas."""
        return "onnx" in sys.modules and not self.is_imported_here


SCHEMAS = Schemas()


def newest_opset(used: int) -> int:
    """The newest opset of the default domain in the table, or in ``onnx`` for a newer model."""
    if used <= newest_known():
        return newest_known()
    newest: int = SCHEMAS.package().defs.onnx_opset_version()
    return max(newest, newest_known())


def node_checker(
    proto: ModelProto, opsets: Mapping[str, int]
) -> Callable[[NodeProto, object], None]:
    """Return ``check(node, where)``, which checks a node against its ONNX schema.

    ``check`` raises ``InvalidModelError``, for example for a missing input or an attribute of the
    wrong type. The full ``onnx.checker`` is not used: it also rejects unsorted nodes and outputs
    without shapes, which the importer accepts.
    """
    is_known = not SCHEMAS.are_of_user()

    def check(node: NodeProto, where: object) -> None:
        if node.ByteSize() > _CHECKER_LIMIT_BYTES:  # a large Constant, checked by the importer
            return
        if not (is_known and accepts(node, opsets)):
            _check(node, where, proto, opsets)

    return check


def _check(node: NodeProto, where: object, proto: ModelProto, opsets: Mapping[str, int]) -> None:
    onnx = SCHEMAS.package()
    if node.domain in DEFAULT_DOMAIN and not onnx.defs.has(node.op_type):
        return  # SimplifiedLayerNormalization, which ONNX Runtime adds to this domain
    context = onnx.checker.C.CheckerContext()
    context.ir_version = proto.ir_version
    context.opset_imports = dict(opsets)
    try:
        onnx.checker.check_node(_without_bodies(node), context)
    except onnx.checker.ValidationError as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise InvalidModelError(
            f"{node.op_type} violates its ONNX schema",
            where=where,
            notes=shortened(lines),
        ) from None


def _without_bodies(node: NodeProto) -> NodeProto:
    """Empty the subgraphs of ``node``: the node checker does not know the values they capture."""
    if not any(a.type == AttributeProto.GRAPH for a in node.attribute):
        return node
    bare = NodeProto()
    bare.CopyFrom(node)
    for attribute in bare.attribute:
        if attribute.type == AttributeProto.GRAPH:
            attribute.g.CopyFrom(GraphProto(name="body"))
    return bare
