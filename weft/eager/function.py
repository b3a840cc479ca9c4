"""Operators that users write in Python, with gradients of their own.

``Function`` is torch's ``autograd.Function``; ``TensorOp`` is Needle's, with ``compute`` and
``gradient``. Both compute with tensors, so that what they do is recorded and compiled with the
operators around.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

from weft.eager.cell import MODE, Cell, alias, node_of
from weft.eager.functions.creation import zeros
from weft.eager.grad_mode import no_grad, set_grad_enabled
from weft.eager.node import CUSTOM, RECORDED, Node, Signature, Spec, spec_of_fields
from weft.eager.record import as_node, wrap
from weft.support.errors import InvalidInputError

# (the gradients of the results, whether to record gradients of them) -> one per tensor operand.
Backward = Callable[[Sequence[Any]], Sequence[Any]]


class Context:
    """``ctx`` of a function: what ``forward`` leaves for ``backward``."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self._without: set[int] = set()

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for ``backward``, which finds them in ``saved_tensors``."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Results without a gradient."""
        self._without = {id(t) for t in tensors}


class Function:
    """A function with its own gradient: subclasses define ``forward`` and ``backward``, static.

    ``forward(ctx, *args)`` computes tensors; ``backward(ctx, *grads)`` takes the gradient of each
    result and returns one for each argument of ``forward``, ``None`` for those without. Call it as
    ``MyFunction.apply(*args)``.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG004 - to be overridden
        """Compute the results; ``ctx.save_for_backward`` keeps tensors."""
        raise InvalidInputError("a Function without forward")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:  # noqa: ARG004 - to be overridden
        """The gradients of the arguments."""
        raise InvalidInputError("a Function without backward")

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """The results of ``forward`` for these arguments."""
        ctx = Context(tuple([isinstance(a, Cell) and node_of(a).grad is not None for a in args]))
        with no_grad():
            results = cls.forward(ctx, *args, **kwargs)

        def backward(grads: Sequence[Any]) -> Sequence[Any]:
            found = cls.backward(ctx, *grads)
            found = found if isinstance(found, tuple) else (found,)
            if len(found) < len(args):
                raise InvalidInputError(f"backward of {cls.__name__} returns too few gradients",
                                        expected=f"{len(args)}, one for each argument",
                                        got=str(len(found)))
            return found

        return linked(results, args, backward, cls.__name__, ctx._without)  # noqa: SLF001


class Operation:
    """What ``gradient`` of a ``TensorOp`` sees: the operands of the call, and the operator."""

    def __init__(self, inputs: tuple[Any, ...], op: TensorOp) -> None:
        self.inputs = inputs
        self.op = op


class TensorOp(abc.ABC):
    """Needle's operator: an object whose ``compute`` gives a tensor from tensors."""

    @abc.abstractmethod
    def compute(self, *args: Any) -> Any:
        """The result, from tensors."""

    @abc.abstractmethod
    def gradient(self, out_grad: Any, node: Any) -> Any:
        """The gradients of ``node.inputs``, from the gradient of the result: one, or a tuple."""

    def __call__(self, *args: Any) -> Any:
        with no_grad():
            result = self.compute(*args)
        inputs = tuple(args)

        def backward(grads: Sequence[Any]) -> Sequence[Any]:
            given = grads[0] if len(grads) == 1 else tuple(grads)
            found = self.gradient(given, Operation(inputs, self))
            return tuple(found) if isinstance(found, (tuple, list)) else (found,)

        return linked(result, args, backward, type(self).__name__)


class OwnBackward:
    """The gradients of the operands of a call from those of its ``results``, by the user's rule."""

    def __init__(self, backward: Backward, results: Sequence[Node],
                 inputs: Sequence[tuple[int, Node]], name: str) -> None:
        self._backward = backward
        self.results = results
        self._inputs = inputs  # by position among the arguments
        self._name = name

    def __call__(self, given: Sequence[Any], *, create_graph: bool) -> list[Node | None]:
        grads = [_zeros(v.sig.out) if g is None else wrap(g)
                 for g, v in zip(given, self.results, strict=True)]
        before = MODE.grad
        try:
            set_grad_enabled(create_graph)
            found = self._backward(grads)
        finally:
            MODE.grad = before
        return [_fitting(found[i], node, self._name) for i, node in self._inputs]


def _zeros(spec: Spec) -> Any:
    return zeros(spec.shape, dtype=spec.dtype, device=spec.device)


def linked(results: Any, args: Sequence[Any], backward: Backward, name: str,
           without: set[int] = frozenset()) -> Any:  # type: ignore[assignment]
    """``results`` with ``backward`` as the way of their gradients to the tensors of ``args``."""
    inputs = [(i, node_of(a)) for i, a in enumerate(args) if isinstance(a, Cell)]
    if not MODE.grad or all(node.grad is None for _, node in inputs):
        return results
    single = not isinstance(results, (tuple, list))
    values = [as_node(r) for r in ((results,) if single else results)]
    spec = spec_of_fields([v.sig.out for v in values])
    sig = Signature(CUSTOM, spec, tuple(node.sig.out for _, node in inputs))
    sig.name = name
    hub = Node(sig, tuple(node for _, node in inputs), None, None)
    hub.grad = RECORDED
    hub.extra = OwnBackward(backward, values, inputs, name)
    made = []
    for i, (value, result) in enumerate(zip(values, (results,) if single else results,
                                            strict=True)):
        node = alias(value)
        if id(result) not in without and value.sig.out.dtype.rank > 1:
            node.link = (hub, i)
            node.grad = RECORDED
        made.append(wrap(node))
    return made[0] if single else tuple(made)


def _fitting(gradient: Any, node: Node, name: str) -> Node | None:
    """A gradient as a node, which has the shape of its operand."""
    if gradient is None or node.grad is None:
        return None
    found = as_node(gradient, node.sig.out.dtype)
    if found.sig.out is not node.sig.out:
        raise InvalidInputError(f"a gradient of {name} does not fit its argument",
                                expected=f"{node.sig.out.shape}, {node.sig.out.dtype}",
                                got=f"{found.sig.out.shape}, {found.sig.out.dtype}")
    return found
