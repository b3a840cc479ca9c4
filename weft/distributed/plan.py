"""``shard``: a model cut over a mesh, from a few shardings that the user names."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.compiler.api import compile as compile_model
from weft.compiler.transformations.parameters import imported
from weft.frontend.source import ModelLike
from weft.frontend.weights import import_with_names
from weft.ir import Constant, Expr, Function, IRModule, TensorType, Var, infer_type, post_order
from weft.ir.sharding import Mesh, Sharding
from weft.runtime.executable import Executable
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean
from weft.transform.passes.extract_subgraph import tensors_and_body
from weft.transform.sharding.choose import nbytes_of
from weft.transform.sharding.partition import Partitioned, partition
from weft.transform.sharding.unroll import unrolled


@dataclass(frozen=True)
class ShardingPlan:
    """A model cut over a mesh: the program of one device, and the decision for each call.

    ``module`` is the whole model, ``part`` what every device runs.
    """

    module: IRModule
    part: Partitioned

    @property
    def mesh(self) -> Mesh:
        return self.part.mesh

    @property
    def local(self) -> Function:
        """The program that each device runs on its parts of the tensors."""
        return self.part.function

    @property
    def inputs(self) -> dict[str, Sharding]:
        """The sharding of each input, by name."""
        names = [p.name for p in self.module["main"].params]
        return dict(zip(names, self.part.parameters, strict=True))

    @property
    def bytes_received(self) -> float:
        """Bytes that each device receives in a call."""
        return self.part.bytes_received

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that each device holds."""
        return sum(nbytes_of(t) for node in post_order(self.local)
                   if isinstance(node, Constant) or node in self.local.params[len(self.inputs):]
                   if isinstance(t := node.checked_type, TensorType))

    def compile(self, devices: Sequence[str] = (), **options: Any) -> Executable:
        """A module on whole tensors that computes what all devices of the mesh compute.

        ``devices`` names one device for each of the mesh (``"sim:0"``, ...); without, all parts run
        on one. ``options`` are those of ``weft.compile``.
        """
        if devices and len(devices) != self.mesh.size:
            raise OptionError("the mesh needs a device for each of its places",
                              expected=f"{self.mesh.size} devices", got=len(devices))
        module = self.module.with_function("main", unrolled(self.part, devices))
        whole = infer_type(dataclasses.replace(module, settled={}, named={}))
        return compile_model(whole, **options)

    def __str__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        Console(file=text, width=110).print(self.__rich__())
        return text.getvalue().rstrip()

    def __rich__(self) -> Any:
        from weft.distributed.visualize import plan_table

        return plan_table(self.part)


def shard(model: ModelLike, mesh: Mesh, shardings: Mapping[str, Sharding] | None = None, *,
          outputs: Sequence[Sharding | None] | None = None,
          inputs: Mapping[str, Sequence[object]] | None = None,
          example_inputs: Sequence[Any] | Mapping[str, Any] | None = None) -> ShardingPlan:
    """Cut ``model`` over the devices of ``mesh``.

    ``shardings`` names inputs, weights and inner tensors and how they are cut; how all others are
    follows from the operators' index maps (``transform.sharding``), and moves as few bytes as the
    choices call by call can. ``outputs`` has a sharding for each output, ``None`` as it comes.
    ``inputs`` and ``example_inputs`` are those of ``weft.compile``.

    Raises ``OptionError`` for unknown names, and for a mesh axis that does not divide a dimension;
    ``PassError`` for programs with control flow or unknown sizes.
    """
    module = import_with_names(lambda: imported(model, inputs, example_inputs))
    inner, body = tensors_and_body(module)
    main = dataclasses.replace(module["main"], body=body)
    known = {**{name: [node] for name, node in inner.items()}, **_stored(main)}
    values: dict[Expr, Sharding] = {}
    for name, sharding in (shardings or {}).items():
        if name not in known:
            raise OptionError(f"the model has no tensor {name!r}", expected=_some(known),
                              help=did_you_mean(name, list(known)))
        values |= dict.fromkeys(known[name], sharding)
    given = [values.pop(p, None) for p in main.params]
    return ShardingPlan(module, partition(main, mesh, given, values=values, results=outputs))


def _stored(main: Function) -> dict[str, list[Expr]]:
    """Inputs and weights by name; a weight may be several equal constants."""
    found: dict[str, list[Expr]] = {}
    for node in post_order(main):
        if isinstance(node, Constant) and node.span is not None and node.span.tensor:
            found.setdefault(node.span.tensor, []).append(node)
        elif isinstance(node, Var):
            found.setdefault(node.name, []).append(node)
    return found


def _some(names: Iterable[str], limit: int = 8) -> str:
    first = list(names)
    return ", ".join(first[:limit]) + (", ..." if len(first) > limit else "")
