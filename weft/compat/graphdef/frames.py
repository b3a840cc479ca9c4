"""Control flow of dataflow frames as functional nodes.

``tf.while_loop`` and ``tf.cond`` of TensorFlow 1 are made of nodes that pass tokens on: a loop
variable is Enter -> Merge -> Switch -> body -> NextIteration -> Merge, with Exit behind the other
output of Switch; a branch is Switch -> branch -> Merge (Yu et al., "Dynamic control flow in
large-scale machine learning", 2018). Each such structure becomes a ``While`` or ``If`` node over
new functions, innermost first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from weft.compat.graphdef.definitions import (
    ArgDef,
    FunctionDef,
    FunctionRef,
    Library,
    NodeDef,
)
from weft.compat.graphdef.names import CONTROL, TensorRef, parse_tensor
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

FRAME_OPS = frozenset({"Enter", "Exit", "NextIteration", "LoopCond", "Switch", "Merge"})
_SHOWN = 6


def functionalize(nodes: Mapping[str, NodeDef], library: Library, source: str
                  ) -> tuple[dict[str, NodeDef], Library]:
    """The nodes with loops and branches as ``While`` and ``If``, and the library they call.

    Structures that are neither stay; ``check_no_frames`` reports those that are needed.
    """
    if not any(node.op in FRAME_OPS for node in nodes.values()):
        return dict(nodes), library
    work = _Functionalizer(dict(nodes), dict(library.functions), source)
    while work.convert_one():
        pass
    return work.nodes, dataclasses.replace(library, functions=work.functions)


def check_no_frames(nodes: Iterable[NodeDef], source: str) -> None:
    """Raise ``UnsupportedModelError`` for nodes of frames that are no loop and no branch."""
    found = [node.label for node in nodes if node.op in FRAME_OPS]
    if found:
        more = ["..."] if len(found) > _SHOWN else []
        raise UnsupportedModelError(
            "the graph has control flow that is neither a loop of tf.while_loop nor a branch of "
            "tf.cond", where=source, got=", ".join(found[:_SHOWN] + more),
            help="freeze the model with TensorFlow 2, which writes While and If nodes")


@dataclass(frozen=True, slots=True)
class _Region:
    """Nodes behind some tensors, up to nodes where the walk stops."""

    inner: tuple[str, ...]
    stops: tuple[str, ...]

    def is_clean(self, nodes: Mapping[str, NodeDef]) -> bool:
        return all(nodes[name].op not in FRAME_OPS for name in self.inner)


@dataclass(frozen=True, slots=True)
class _Variable:
    """The nodes of one loop variable; ``exit`` is ``None`` if no node reads its last value."""

    enter: NodeDef
    merge: NodeDef
    switch: NodeDef | None
    following: NodeDef
    exit: str | None


class _Functionalizer:
    """``nodes`` and ``functions`` change with every structure that is converted."""

    def __init__(self, nodes: dict[str, NodeDef], functions: dict[str, FunctionDef], source: str
                 ) -> None:
        self.nodes = nodes
        self.functions = functions
        self._source = source
        self._loops_left = {
            str(n.attrs["frame_name"]) for n in nodes.values()
            if n.op == "Enter" and "frame_name" in n.attrs}
        self._branches_left = [
            n.name for n in nodes.values() if n.op == "Merge" and not self._is_loop(n)]

    def _producer(self, text: str) -> NodeDef | None:
        return self.nodes.get(parse_tensor(text).node)

    def _is_loop(self, merge: NodeDef) -> bool:
        return any(p is not None and p.op == "NextIteration"
                   for p in map(self._producer, merge.inputs))

    def convert_one(self) -> bool:
        """Convert an innermost structure; whether there was one."""
        for name in self._branches_left:
            if self._convert_branch(self.nodes[name]):
                self._branches_left.remove(name)
                return True
        for frame in sorted(self._loops_left):
            if self._convert_loop(frame):
                self._loops_left.remove(frame)
                return True
        return False

    def _region(self, start: Iterable[str], stop: Collection[str]) -> _Region:
        """The nodes that the inputs ``start`` depend on, without ``stop``."""
        inner: dict[str, None] = {}
        stops: dict[str, None] = {}
        pending = [parse_tensor(text).node for text in start]
        while pending:
            name = pending.pop()
            if name in stop:
                stops[name] = None
            elif name not in inner:
                inner[name] = None
                pending.extend(parse_tensor(text).node for text in self.nodes[name].inputs)
        return _Region(tuple(inner), tuple(stops))

    # Branches.

    def _convert_branch(self, merge: NodeDef) -> bool:
        if len(merge.data_inputs) != 2:
            return False
        switches = {n.name for n in self.nodes.values() if n.op == "Switch"}
        sides = [self._region([text], switches) for text in merge.data_inputs]
        preds = {self.nodes[s].inputs[1] for side in sides for s in side.stops}
        if len(preds) != 1 or not all(side.is_clean(self.nodes) for side in sides):
            return False
        takes = [self._side_of(text, side) for text, side in
                 zip(merge.data_inputs, sides, strict=True)]
        if sorted(takes) != [0, 1]:
            return False
        stops = tuple(dict.fromkeys(s for side in sides for s in side.stops))
        args = tuple(f"switch_{i}" for i in range(len(stops)))
        given = {TensorRef(s, i): a for s, a in zip(stops, args, strict=True) for i in (0, 1)}
        names = {}
        for side, taken, text in zip(sides, takes, merge.data_inputs, strict=True):
            label = "then" if taken else "else"
            names[taken] = self._function(f"{merge.name}_{label}", args, side.inner, given, [text])
        inputs = (preds.pop(), *(self.nodes[s].inputs[0] for s in stops),
                  *(f"^{name}" for name in merge.control_inputs))
        self.nodes[merge.name] = NodeDef(
            merge.name, "If", inputs, merge.device,
            {"then_branch": FunctionRef(names[1]), "else_branch": FunctionRef(names[0])},
            merge.span)
        return True

    def _side_of(self, text: str, region: _Region) -> int:
        """The output of Switch that a side reads: 1 where the predicate holds; -1 for both."""
        read = {ref.index for name in region.inner for ref in map(parse_tensor,
                                                                  self.nodes[name].inputs)
                if ref.node in region.stops and ref.index != CONTROL}
        direct = parse_tensor(text)
        if direct.node in region.stops:
            read.add(direct.index)
        return read.pop() if len(read) == 1 else -1

    # Loops.

    def _convert_loop(self, frame: str) -> bool:
        enters = [n for n in self.nodes.values()
                  if n.op == "Enter" and n.attrs.get("frame_name") == frame]
        constants = [n for n in enters if n.attrs.get("is_constant")]
        variables = self._variables([n for n in enters if n not in constants])
        if not variables:
            return False
        conditions = {v.switch.inputs[1] for v in variables if v.switch is not None}
        if len(conditions) != 1:
            return False
        condition = self._producer(conditions.pop())
        if condition is None or condition.op != "LoopCond":
            return False
        edge = {v.merge.name for v in variables} | {n.name for n in constants} \
            | {v.switch.name for v in variables if v.switch is not None} | {condition.name}
        test = self._region(condition.inputs, edge)
        body = self._region([v.following.inputs[0] for v in variables], edge)
        if not (test.is_clean(self.nodes) and body.is_clean(self.nodes)):
            return False
        self._add_loop(frame, variables, constants, condition, test, body)
        return True

    def _variables(self, enters: Sequence[NodeDef]) -> list[_Variable]:
        """The loop variables; none if an Enter does not lead to the structure of one."""
        merges = {parse_tensor(text).node: n for n in self.nodes.values()
                  if n.op == "Merge" and self._is_loop(n) for text in n.data_inputs}
        switches = {parse_tensor(n.inputs[0]).node: n for n in self.nodes.values()
                    if n.op == "Switch" and n.inputs}
        exits = {parse_tensor(n.inputs[0]).node: n for n in self.nodes.values()
                 if n.op == "Exit" and n.inputs}
        found = []
        for enter in enters:
            merge = merges.get(enter.name)
            if merge is None:
                return []
            following = next((p for p in map(self._producer, merge.data_inputs)
                              if p is not None and p.op == "NextIteration"), None)
            if following is None:
                return []
            switch = switches.get(merge.name)
            last = None if switch is None else exits.get(switch.name)
            name = None if last is None else last.name
            found.append(_Variable(enter, merge, switch, following, name))
        return found

    def _add_loop(self, frame: str, variables: Sequence[_Variable], constants: Sequence[NodeDef],
                  condition: NodeDef, test: _Region, body: _Region) -> None:
        """Add the ``While`` node of a loop, and read its results where Exit nodes were."""
        count = len(variables)
        args = tuple(f"loop_var_{i}" for i in range(count + len(constants)))
        given: dict[TensorRef, str] = {}
        for variable, arg in zip(variables, args, strict=False):
            given[TensorRef(variable.merge.name, 0)] = arg
            if variable.switch is not None:
                given[TensorRef(variable.switch.name, 1)] = arg
        given |= {TensorRef(n.name, 0): arg for n, arg in zip(constants, args[count:], strict=True)}
        name = self._free(frame.replace(" ", "_"))
        results = [v.following.inputs[0] for v in variables] + [n.name for n in constants]
        test_of = condition.inputs[:1]
        refs = {"cond": self._function(f"{name}_cond", args, test.inner, given, test_of),
                "body": self._function(f"{name}_body", args, body.inner, given, results)}
        inputs = tuple(n.inputs[0] for n in (*(v.enter for v in variables), *constants))
        span = variables[0].merge.span
        self.nodes[name] = NodeDef(name, "While", inputs, "",
                                   {key: FunctionRef(ref) for key, ref in refs.items()}, span)
        for index, variable in enumerate(variables):
            if variable.exit is not None:
                old = self.nodes[variable.exit]
                control = tuple(f"^{c}" for c in old.control_inputs)
                self.nodes[variable.exit] = NodeDef(
                    old.name, "Identity", (f"{name}:{index}", *control), old.device, {}, old.span)

    def _free(self, name: str) -> str:
        number, found = 0, name
        while found in self.nodes or f"{found}_body" in self.functions:
            number += 1
            found = f"{name}_{number}"
        return found

    def _function(self, name: str, args: Sequence[str], inner: Sequence[str],
                  given: Mapping[TensorRef, str], results: Sequence[str]) -> str:
        """Add a function of the nodes ``inner``, in which ``given`` tensors are arguments."""
        def inside(text: str) -> str:
            return given.get(parse_tensor(text), text)

        kept = set(inner)
        nodes = []
        for n in inner:
            node = self.nodes[n]
            control = [f"^{c}" for c in node.control_inputs if c in kept]
            nodes.append(dataclasses.replace(
                node, inputs=(*map(inside, node.data_inputs), *control)))
        number, found = 0, name
        while found in self.functions:
            number += 1
            found = f"{name}_{number}"
        outputs = tuple(f"result_{i}" for i in range(len(results)))
        self.functions[found] = FunctionDef(
            found, tuple(map(ArgDef, args)), tuple(map(ArgDef, outputs)), tuple(nodes),
            dict(zip(outputs, map(inside, results), strict=True)))
        return found
