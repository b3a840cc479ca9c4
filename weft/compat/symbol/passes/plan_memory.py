"""``PlanMemory``: storage shared by entries whose live ranges do not overlap (NNVM)."""

from __future__ import annotations

from weft.compat.symbol.compose import mutated_inputs
from weft.compat.symbol.graph import Graph, IndexedGraph, graph_pass
from weft.compat.symbol.node import Node, NodeEntry
from weft.compat.symbol.slots import get_attr
from weft.ir.dtype import DType
from weft.support.errors import PassError

EXTERNAL = -1
# A free block is reused if its size is within this factor of the needed size.
_SEARCH = 16


@graph_pass("PlanMemory", depends=("shape", "dtype"),
            provides=("storage_id", "storage_inplace_index", "storage_allocated_bytes"))
def plan_memory(graph: Graph) -> Graph:
    """Storage of each entry: ``storage_id``, -1 for variables; ``storage_allocated_bytes`` in all.

    ``storage_inplace_index`` is the input whose storage a result takes over, or -1: the slots
    ``FInplaceOption`` and ``FInplaceIdentity`` allow it at the last use of the input.
    """
    plan = _Plan(graph)
    for node in plan.index.nodes:
        plan.visit(node)
    return graph.with_attrs(storage_id=plan.storage, storage_inplace_index=plan.inplace,
                            storage_allocated_bytes=sum(plan.sizes))


class _Plan:
    def __init__(self, graph: Graph) -> None:
        self.index: IndexedGraph = graph.index()
        self.bytes = [_bytes(shape, dtype) for shape, dtype
                      in zip(graph.attrs["shape"], graph.attrs["dtype"], strict=True)]
        count = self.index.num_entries
        self.storage = [EXTERNAL] * count
        self.inplace = [-1] * count
        self.sizes: list[int] = []  # of each storage
        self.uses = [0] * count
        self.shared: list[int] = []  # the entries that occupy a storage
        self.free: list[int] = []
        for node in self.index.nodes:
            for entry in _read(node):
                self.uses[self.index.entry_id(entry)] += 1
        for number in self.index.output_ids:
            self.uses[number] += 1  # results are never freed

    def visit(self, node: Node) -> None:
        if node.op is None:
            return
        inputs = [self.index.entry_id(entry) for entry in node.inputs]
        first = self.index.node_row_ptr[self.index.number[node]]
        keeps = get_attr(node.op, "TKeepsMutatedInputs")
        mutated = () if keeps else mutated_inputs(node)
        for position in range(node.num_outputs):
            number = first + position
            source = self._reused(node, inputs, position)
            if mutated and position == 0:
                self.inplace[number] = mutated[0]  # the result is in the memory of the variable
            elif source is not None:
                self.inplace[number] = source
                self._hold(number, self.storage[inputs[source]])
            else:
                self._hold(number, self._taken(self.bytes[number]))
        for number in map(self.index.entry_id, _read(node)):
            self.uses[number] -= 1
            if self.uses[number] == 0:
                self._release(number)
        for number in range(first, first + node.num_outputs):
            if self.uses[number] == 0:
                self._release(number)

    def _reused(self, node: Node, inputs: list[int], position: int) -> int | None:
        """The input whose storage the result may take over."""
        assert node.op is not None
        option = get_attr(node.op, "FInplaceOption")
        identity = get_attr(node.op, "FInplaceIdentity")
        pairs = option(node.params) if option is not None else ((0, 0),) if identity else ()
        for source, result in pairs:
            number = inputs[source] if source < len(inputs) else -1
            if result == position and number >= 0 and node.inputs[source] in _read(node) \
                    and self.storage[number] != EXTERNAL and self.uses[number] == 1 \
                    and self.shared[self.storage[number]] == 1 \
                    and self.bytes[number] >= self.bytes[
                        self.index.node_row_ptr[self.index.number[node]] + position]:
                return int(source)
        return None

    def _hold(self, number: int, storage: int) -> None:
        self.storage[number] = storage
        self.shared[storage] += 1

    def _taken(self, size: int) -> int:
        """A free storage of about the size, which grows if it is smaller, or a new one."""
        fitting = [s for s in self.free
                   if self.sizes[s] <= size * _SEARCH and self.sizes[s] * _SEARCH >= size]
        if fitting:
            found = min(fitting, key=lambda s: (self.sizes[s] < size, abs(self.sizes[s] - size)))
            self.free.remove(found)
            self.sizes[found] = max(self.sizes[found], size)
            return found
        self.sizes.append(size)
        self.shared.append(0)
        return len(self.sizes) - 1

    def _release(self, number: int) -> None:
        storage = self.storage[number]
        if storage == EXTERNAL:
            return
        self.shared[storage] -= 1
        if self.shared[storage] == 0:
            self.free.append(storage)


def _read(node: Node) -> list[NodeEntry]:
    """The inputs whose values a node reads: not those that ``FIgnoreInputs`` lists."""
    ignored = None if node.op is None else get_attr(node.op, "FIgnoreInputs")
    without = () if ignored is None else ignored(node.params)
    return [entry for i, entry in enumerate(node.inputs) if i not in without]


def _bytes(shape: tuple[int, ...] | None, dtype: str) -> int:
    if shape is None or 0 in shape or not dtype:
        raise PassError("PlanMemory needs shapes and dtypes of all entries",
                        help="give shape_inputs and dtype_inputs of all variables")
    count = DType.of(dtype).itemsize
    for size in shape:
        count *= size
    return count
