"""Converters of Scan, a loop over the slices of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.onnx.loops import MAX_UNROLLED_NODES, run_loop
from weft.frontend.onnx.node import Body, Node, Value, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import stacked
from weft.ir import AnyDim, Dim, Expr
from weft.support.allocation import check_nodes
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError

_MANY = 1 << 20


@dataclass(frozen=True)
class _Scan:
    """A Scan: each step maps the state and one slice of each scanned tensor to the next state."""

    node: Node
    body: Body
    state: tuple[Expr, ...]
    scanned: tuple[Expr, ...]
    input_axes: tuple[int, ...]
    output_axes: tuple[int, ...]
    input_backward: tuple[bool, ...]
    output_backward: tuple[bool, ...]

    @property
    def length(self) -> Dim:
        """The number of steps."""
        return tensor_type(self.scanned[0]).shape[self.input_axes[0]]

    @property
    def steps(self) -> int | None:
        """The number of steps; ``None`` if it is only known at run time."""
        return self.length if isinstance(self.length, int) else None


@converts("Scan", since=9, outputs=_MANY, attributes=(
    "body", "num_scan_inputs", "scan_input_axes", "scan_input_directions", "scan_output_axes",
    "scan_output_directions"))  # fmt: skip
def scan(node: Node) -> Sequence[Expr]:
    inputs = node.all_inputs()
    count = _scan_count(node, len(inputs))
    state, scanned = inputs[: len(inputs) - count], inputs[len(inputs) - count :]
    outputs = node.output_count - len(state)
    axes = _per_tensor(node, "scan_input_axes", count)
    return _run(_Scan(
        node,
        node.body("body"),
        tuple(state),
        tuple(scanned),
        tuple(node.axis(a, len(tensor_type(x).shape)) for a, x in zip(axes, scanned, strict=True)),
        _per_tensor(node, "scan_output_axes", outputs),
        _backward(node, "scan_input_directions", count),
        _backward(node, "scan_output_directions", outputs),
    ))  # fmt: skip


@converts("Scan", since=8, attributes=("body", "num_scan_inputs", "directions"), outputs=_MANY)
def scan_of_batches(node: Node) -> Sequence[Expr]:
    """Convert Scan of opset 8: all tensors have a leading batch axis; entries are scanned alone."""
    if node.has_input(0):
        raise UnsupportedModelError("Scan with sequence_lens", where=node.span,
                                    help="convert the model to opset 9 or later")  # fmt: skip
    inputs = [node.input(i) for i in range(1, len(node.inputs))]
    count = _scan_count(node, len(inputs))
    batch = tensor_type(inputs[0]).shape[:1]
    if not batch or not isinstance(batch[0], int) or batch[0] < 1:
        raise UnsupportedModelError("Scan over a batch of symbolic size", where=node.span)
    outputs = node.output_count - (len(inputs) - count)
    check_nodes(batch[0] * node.body("body").size)
    results = []
    for index in range(batch[0]):
        parts = [_taken(node, x, node.constant(index, "int64"), 0) for x in inputs]
        results.append(_run(_Scan(
            node, node.body("body"), tuple(parts[: len(parts) - count]),
            tuple(parts[len(parts) - count :]), (0,) * count, (0,) * outputs,
            _backward(node, "directions", count), (False,) * outputs,
        )))  # fmt: skip
    return [stacked(node, parts, 0) for parts in zip(*results, strict=True)]


def _scan_count(node: Node, inputs: int) -> int:
    count = node.attrs.integer("num_scan_inputs", 0)
    if not 1 <= count <= inputs or node.body("body").input_count != inputs:
        raise node.fail(
            "the scan body has the wrong number of inputs",
            expected=f"{node.body('body').input_count} inputs, num_scan_inputs of them scanned",
            got=f"{inputs} inputs, num_scan_inputs = {count}",
        )
    return count


def _per_tensor(node: Node, name: str, count: int) -> tuple[int, ...]:
    values = node.attrs.integers(name)
    if values is None:
        return (0,) * count
    if len(values) != count:
        raise node.fail(f"attribute {name!r} has the wrong length", expected=f"{count} numbers",
                        got=str(values))  # fmt: skip
    return values


def _backward(node: Node, name: str, count: int) -> tuple[bool, ...]:
    values = _per_tensor(node, name, count)
    if any(v not in (0, 1) for v in values):
        raise node.fail(f"attribute {name!r} has an unknown direction", expected="0 or 1",
                        got=str(values))  # fmt: skip
    return tuple(v == 1 for v in values)


def _run(s: _Scan) -> list[Expr]:
    lengths = {tensor_type(x).shape[a] for x, a in zip(s.scanned, s.input_axes, strict=True)}
    if len(lengths) > 1:
        raise s.node.fail("the scanned tensors differ in length",
                          got=", ".join(sorted(map(str, lengths))))  # fmt: skip
    steps = s.steps
    unrolls = steps is not None and steps >= 1 and steps * s.body.size <= MAX_UNROLLED_NODES
    results = _unrolled(s, steps) if unrolls and steps is not None else _looped(s)
    count = len(s.state)
    return [*results[:count], *(_arranged(s, n, x) for n, x in enumerate(results[count:]))]


def _unrolled(s: _Scan, steps: int) -> list[Expr]:
    state: list[Expr] = list(s.state)
    collected: list[tuple[Expr, ...]] = []
    for step in range(steps):
        i = s.node.constant(step, "int64")
        results = _tensors(s, s.body.convert((*state, *_slices(s, i))))
        state = results[: len(state)]
        collected.append(tuple(results[len(state) :]))
    return [*state, *(stacked(s.node, parts, 0) for parts in zip(*collected, strict=True))]


def _looped(s: _Scan) -> list[Expr]:
    node = s.node
    steps = s.steps
    trip_count = node.constant(steps, "int64") if steps is not None else _length(s)
    results = run_loop(
        node, trip_count, node.constant(True, "bool"), s.state,
        lambda i, going, state: [going, *s.body.convert((*state, *_slices(s, i)))],
        length=s.length,
    )  # fmt: skip
    return _tensors(s, results)


def _length(s: _Scan) -> Expr:
    if not isinstance(s.length, AnyDim):
        return s.node.size(s.length)
    shape = s.node.call(op.shape_of, s.scanned[0], dtype="int64")
    return s.node.call(op.take, shape, s.node.constant(s.input_axes[0], "int64"), axis=0)


def _tensors(s: _Scan, values: Sequence[Value]) -> list[Expr]:
    return list(map(s.node.tensor, values))


def _slices(s: _Scan, i: Expr) -> list[Expr]:
    parts = zip(s.scanned, s.input_axes, s.input_backward, strict=True)
    return [_slice(s, x, i, axis, backward) for x, axis, backward in parts]


def _slice(s: _Scan, x: Expr, i: Expr, axis: int, backward: bool) -> Expr:
    if backward:
        last = s.node.constant(s.steps - 1, "int64") if s.steps is not None else s.node.call(
            op.subtract, _length(s), s.node.constant(1, "int64"))  # fmt: skip
        i = s.node.call(op.subtract, last, i)
    return _taken(s.node, x, i, axis)


def _taken(node: Node, x: Expr, i: Expr, axis: int) -> Expr:
    return node.call(op.take, x, i, axis=axis, mode="clip")


def _arranged(s: _Scan, index: int, collected: Expr) -> Expr:
    """Move the step axis of a scan output from axis 0 to its axis, in its direction."""
    rank = len(tensor_type(collected).shape)
    if s.output_backward[index]:
        collected = s.node.call(op.reverse, collected, axis=0)
    axis = s.node.axis(s.output_axes[index], rank)
    if axis == 0:
        return collected
    order = list(range(1, rank))
    order.insert(axis, 0)
    return s.node.call(op.transpose, collected, axes=tuple(order))
