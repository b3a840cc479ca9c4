"""``shard``: a model cut over a mesh, from a few shardings that the user names."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, overload

from weft.compiler.api import compile as compile_model
from weft.compiler.options import CompileOptions
from weft.compiler.transformations.parameters import imported
from weft.distributed.call_costs import CallCosts
from weft.frontend.source import ModelLike
from weft.frontend.weights import import_with_names
from weft.ir import (
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Var,
    infer_type,
    is_static,
    post_order,
)
from weft.ir.sharding import Mesh, Sharding
from weft.runtime.executable import Executable
from weft.runtime.profile import Exchange
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.suggestion import did_you_mean
from weft.target import Target
from weft.transform.passes.extract_subgraph import tensors_and_body
from weft.transform.sharding.blocks import Block, Repeat, Start, Step, inner_blocks
from weft.transform.sharding.choose import Costs
from weft.transform.sharding.costs import call_bytes, collective_name, nbytes_of
from weft.transform.sharding.loops import first_order, loops_of
from weft.transform.sharding.pad_axes import partition_padded
from weft.transform.sharding.partition import Partitioned, partition
from weft.transform.sharding.steps import block_of, steps_of
from weft.transform.sharding.unroll import unrolled

if TYPE_CHECKING:
    from weft.distributed.communicator import Communicator
    from weft.distributed.predict import Prediction
    from weft.distributed.rank_module import RankModule
    from weft.distributed.visualize import Explanation


@dataclass(frozen=True, eq=False)
class ShardingPlan:
    """A model cut over a mesh: the program of one device, and the decision for each call.

    ``module`` is the whole model, ``part`` what every device runs. ``cut`` makes a part for
    another mesh of the same axes.
    """

    module: IRModule
    part: Partitioned
    cut: Callable[[Mesh], Partitioned] | None = field(default=None, repr=False)

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
    def steps(self) -> list[Step]:
        """The order in which a device computes, starts collectives and waits for them."""
        return steps_of(self.part.module)

    @property
    def bytes_received(self) -> float:
        """Bytes that each device receives in a call."""
        return self.part.bytes_received

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights that each device holds."""
        return sum(nbytes_of(t) for fn in self.part.module.functions.values()
                   for node in post_order(fn)
                   if isinstance(node, Constant) or node in self.local.params[len(self.inputs):]
                   if isinstance(t := node.checked_type, TensorType))

    @overload
    def compile(self, devices: Sequence[str] = (), *, communicator: None = None,
                **options: Any) -> Executable: ...

    @overload
    def compile(self, devices: Sequence[str] = (), *, communicator: Communicator,
                **options: Any) -> RankModule: ...

    def compile(self, devices: Sequence[str] = (), *, communicator: Communicator | None = None,
                **options: Any) -> Executable | RankModule:
        """A module on whole tensors that computes what all devices of the mesh compute.

        ``devices`` names one device for each of the mesh (``"sim:0"``, ...); without, all parts run
        on one. With ``communicator``, it is the module of one rank, on the rank's parts; every rank
        compiles its own. ``options`` are those of ``weft.compile``.
        """
        if communicator is not None:
            from weft.distributed.rank_module import RankModule

            return RankModule(self.part, communicator, **options)
        if devices and len(devices) != self.mesh.size:
            raise OptionError("the mesh needs a device for each of its places",
                              expected=f"{self.mesh.size} devices", got=len(devices))
        if devices and self.part.has_control_flow:
            raise OptionError("a program with branches or loops does not take a device for each "
                              "part", got=", ".join(devices),
                              help="leave devices out, or give each rank a communicator")
        functions = unrolled(self.part, devices).functions
        whole = infer_type(dataclasses.replace(
            self.module, functions=functions, settled={}, named={}))
        made = compile_model(whole, **options)
        made.exchanges = tuple(self.exchanges())
        return made

    def exchanges(self) -> Iterator[Exchange]:
        """The collectives in the order in which a device starts them."""
        yield from self._exchanges(block_of(self.part.module), 1)

    def _exchanges(self, block: Block, times: int) -> Iterator[Exchange]:
        for step in block.inner_steps():
            if isinstance(step, Start):
                axes: Any = getattr(step.call.attrs, "axes", ())
                yield Exchange(str(collective_name(step.call)), axes,
                               times * call_bytes(step.call, self.mesh))
            count = self.part.iterations.get(step.name, 1) if isinstance(step, Repeat) else 1
            for inner in inner_blocks(step):
                yield from self._exchanges(inner, times * count)

    def predict(self, counts: Sequence[int] = (), *, axis: str = "", **options: Any) -> Prediction:
        """The time of a step on other numbers of devices, by default 8 to 1,024.

        ``axis`` is the one that grows, by default the first. The mesh needs links. ``options`` are
        those of ``weft.compile``, such as the target that is one device.
        """
        from weft.distributed.predict import COUNTS, predict

        if self.cut is None:
            raise OptionError("this plan does not know the model that it cuts",
                              help="make it by weft.distributed.shard")
        return predict(self.cut, self.mesh, axis or next(iter(self.mesh.axes)), counts or COUNTS,
                       CompileOptions.make(**options))

    def explain(self) -> Explanation:
        """What each call computes and exchanges, and why it is cut as it is; print it."""
        from weft.distributed.visualize import Explanation

        return Explanation(self.part)

    def __str__(self) -> str:
        from weft.distributed.visualize import printed

        return printed(self)

    def __rich__(self) -> Any:
        from weft.distributed.visualize import plan_table

        return plan_table(self.part)


def shard(model: ModelLike, mesh: Mesh, shardings: Mapping[str, Sharding] | None = None, *,
          outputs: Sequence[Sharding | None] | None = None,
          inputs: Mapping[str, Sequence[object]] | None = None,
          example_inputs: Sequence[Any] | Mapping[str, Any] | None = None,
          pad: bool = False, target: Target | str = "cpu") -> ShardingPlan:
    """Cut ``model`` over the devices of ``mesh``.

    ``shardings`` names inputs, weights and inner tensors and how they are cut; how all others are
    follows from the operators' index maps (``transform.sharding``), and moves as few bytes as the
    choices call by call can. On a mesh with links, plans take the least time: an exchange is worth
    the computing that it saves on devices of ``target``. ``outputs`` has a sharding for each
    output, ``None`` as it comes. ``inputs`` and ``example_inputs`` are those of ``weft.compile``.
    With ``pad``, dimensions that the mesh does not divide are padded, and results cut to their
    sizes.

    Raises ``OptionError`` for unknown names, and for a mesh axis that does not divide a dimension;
    ``PassError`` for closures, recursion that is no loop and unknown sizes, and for operators that
    need an axis without padding.
    """
    module = first_order(import_with_names(lambda: imported(model, inputs, example_inputs)))
    inner, body = tensors_and_body(module)
    main = dataclasses.replace(module["main"], body=body)
    known = {**{name: [node] for name, node in inner.items()}, **_stored(main)}
    values: dict[Expr, Sharding] = {}
    for name, sharding in (shardings or {}).items():
        if name not in known:
            raise OptionError(f"the model has no tensor {name!r}", expected=_some(known),
                              help=did_you_mean(name, list(known)))
        _check_fit(name, known[name][0], sharding, mesh, pad)
        values |= dict.fromkeys(known[name], sharding)
    given, loops = [values.pop(p, None) for p in main.params], loops_of(module)

    cut_over = partition_padded if pad else partition
    of_calls = CallCosts(Target.of(target))

    def cut(mesh: Mesh) -> Partitioned:
        def made(costs: Costs | None) -> Partitioned:
            return cut_over(main, mesh, given, values=values, results=outputs, loops=loops,
                            costs=costs)

        if not all(name in mesh.links for name, size in mesh.axes.items() if size > 1):
            return made(None)
        return _faster(made(Costs(of_calls.seconds)), made(Costs(of_calls.seconds, spreads=True)))

    return ShardingPlan(module, cut(mesh), cut)


def _faster(given: Partitioned, spread: Partitioned) -> Partitioned:
    """The plan that takes less time; one computes less, but may exchange more."""
    gain, more = given.computing - spread.computing, spread.exchanging - given.exchanging
    if gain <= max(more, 0.0):
        return given if gain <= 0 else dataclasses.replace(given, because=(
            "cut as the shardings say: to cut more calls would compute "
            f"{gain * 1e6:,.1f} us less and exchange {more * 1e6:,.1f} us more"))
    return dataclasses.replace(spread, because=(
        f"cut further than the shardings say: computes {gain * 1e6:,.1f} us less for "
        f"{more * 1e6:,.1f} us of exchange"))


def _check_fit(name: str, node: Expr, sharding: Sharding, mesh: Mesh, pad: bool) -> None:
    """Raise ``OptionError`` with the name of a tensor whose sizes the mesh does not divide."""
    type_ = node.checked_type
    if isinstance(type_, TensorType) and is_static(type_):
        try:
            check = sharding.padded_shape if pad else sharding.local_shape
            check(type_.concrete_shape, mesh)
        except OptionError as error:
            raise error.at(f"tensor {name!r}") from error


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
