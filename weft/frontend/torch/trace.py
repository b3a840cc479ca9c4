"""A trace of torch with symbolic sizes: the sizes for which it holds, and traces for others."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.export.graph_signature import ConstantArgument, InputKind, TensorArgument
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from weft.frontend.torch.dims import differs, expression_of, symbol_value, symbols_in, value_at
from weft.frontend.torch.export import quiet, traced, unlogged
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """What torch traced, in its own operators and decomposed to core ATen.

    ``source`` runs at any size: it is the module, or the module of an exported program.
    ``questions`` are the conditions on sizes that its Python code branched on.
    """

    source: torch.nn.Module
    exported: torch.export.ExportedProgram
    decomposed: torch.export.ExportedProgram
    questions: Sequence[sympy.Basic] = ()

    @property
    def inputs(self) -> list[torch.fx.Node]:
        """The placeholders of the tensors that calls give."""
        nodes = {node.name: node for node in self.decomposed.graph.nodes}
        return [nodes[spec.arg.name] for spec in self.decomposed.graph_signature.input_specs
                if spec.kind is InputKind.USER_INPUT and isinstance(spec.arg, TensorArgument)]

    def usual_sizes(self) -> dict[str, int]:
        """The symbols of the inputs, with their values in the example."""
        found: dict[str, int] = {}
        for node in self.inputs:
            for size in node.meta["val"].shape:
                hint = size.node.hint if isinstance(size, torch.SymInt) else None
                known = None if hint is None else symbol_value(expression_of(size), hint)
                if known is not None and isinstance(known[1], int):
                    found.setdefault(known[0], known[1])
        return found

    def guards(self) -> list[sympy.Basic]:
        """The conditions that torch found for the trace, besides ranges of symbols."""
        for node in self.inputs:
            for size in node.meta["val"].shape:
                if isinstance(size, torch.SymInt):
                    known = size.node.shape_env
                    guards = (_replaced(guard.expr, known.replacements) for guard in known.guards)
                    return list(dict.fromkeys(guards))
        return []

    def holds_at(self, sizes: Mapping[str, int], guards: Container[sympy.Basic] = ()) -> bool:
        """Whether torch would run the traced operators at these sizes, which it did not assume.

        torch runs the operators of both graphs on tensors without data. They must take these sizes,
        and every result must have the size that the trace says. Questions of Python code that are
        in ``guards`` are not repeated: calls check them.
        """
        usual = self.usual_sizes()
        wanted = {**usual, **sizes}
        if any(differs(question, wanted, usual) for question in self.questions
               if question not in guards and sympy.Not(question) not in guards):
            return False
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
        try:
            with unlogged("torch._subclasses.fake_tensor"), quiet(), torch.no_grad(), mode:
                for program in (self.exported, self.decomposed):
                    values = self._values(program, self._shapes(wanted))
                    _Checked(program.graph_module, wanted).run(*values)
        except Exception:  # noqa: BLE001 - operators refuse sizes by errors of any class
            return False
        return True

    def at(self, shapes: Sequence[Sequence[int]]) -> torch.export.ExportedProgram:
        """The trace for inputs of these shapes; ``InvalidModelError`` where torch refuses them."""
        args, kwargs = self._arguments(shapes)
        try:
            if any(0 in shape for shape in shapes):
                with quiet(), torch.no_grad():  # traces take some empty tensors that kernels refuse
                    self.source(*args, **kwargs)
        except Exception as error:
            raise InvalidModelError("torch does not run the module",
                                    got=f"{type(error).__name__}: {error}") from error
        with unlogged("torch._subclasses.fake_tensor"):  # the error repeats torch's log
            return traced(self.source, args, kwargs)

    def _shapes(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        return [tuple(int(value_at(expression_of(size), sizes)) for size in node.meta["val"].shape)
                for node in self.inputs]

    def _arguments(self, shapes: Sequence[Sequence[int]]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of ``source``, with tensors of these shapes."""
        tensors = (_empty(node, shape) for node, shape in zip(self.inputs, shapes, strict=True))
        leaves = [next(tensors) if isinstance(spec.arg, TensorArgument) else _constant(spec.arg)
                  for spec in self.decomposed.graph_signature.input_specs
                  if spec.kind is InputKind.USER_INPUT]
        structure = self.exported.call_spec.in_spec
        if structure is None:
            return tuple(leaves), {}
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        return tuple(args), dict(kwargs)

    def _values(self, program: torch.export.ExportedProgram, shapes: Sequence[Sequence[int]]
                ) -> Iterator[Any]:
        """The values of the placeholders of a graph."""
        held = {**program.state_dict, **program.constants}
        tensors = (_empty(node, shape) for node, shape in zip(self.inputs, shapes, strict=True))
        for spec in program.graph_signature.input_specs:
            if not isinstance(spec.arg, TensorArgument):
                yield _constant(spec.arg)
            else:
                yield next(tensors) if spec.kind is InputKind.USER_INPUT else held[spec.target]


def _replaced(guard: sympy.Basic, known: Mapping[sympy.Symbol, sympy.Expr]) -> sympy.Basic:
    """A guard over the symbols that sizes are written in; others are equal to sizes of these."""
    while guard.free_symbols & known.keys():
        replaced = guard.xreplace(dict(known))
        if replaced == guard:
            break
        guard = replaced
    return guard


def _empty(node: torch.fx.Node, shape: Sequence[int]) -> torch.Tensor:
    traced = node.meta["val"]  # the shape of a complex input has an axis more, for its parts
    return torch.zeros(tuple(shape[:traced.dim()]), dtype=traced.dtype)


def _constant(argument: Any) -> Any:
    return argument.value if isinstance(argument, ConstantArgument) else None


class _Checked(torch.fx.Interpreter):
    """Runs a graph, and raises ``ValueError`` where a result has another size than traced."""

    def __init__(self, module: torch.fx.GraphModule, sizes: Mapping[str, int]) -> None:
        super().__init__(module)
        self._sizes = sizes

    def run_node(self, n: torch.fx.Node) -> Any:
        result = super().run_node(n)
        said, made = (pytree.tree_leaves(v) for v in (n.meta.get("val"), result))
        for expected, value in zip(said, made, strict=False):
            if isinstance(expected, torch.Tensor) and not self._has_sizes(value, expected):
                raise ValueError(f"{n.name} has shape {tuple(value.shape)}")
        return result

    def _has_sizes(self, value: torch.Tensor, expected: torch.Tensor) -> bool:
        if value.ndim != expected.ndim:
            return False
        for mine, theirs in zip(value.shape, expected.shape, strict=True):
            expr = expression_of(theirs)
            if symbols_in(expr) <= self._sizes.keys() and isinstance(mine, int) \
                    and value_at(expr, self._sizes) != mine:
                return False
        return True
