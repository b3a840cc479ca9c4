"""Methods that change a tensor: ``x.add_(1)`` makes ``x`` refer to ``x + 1``."""

from __future__ import annotations

from typing import Any

from weft.eager.cell import Cell, alias, bind, check_in_place, node_of, spec_of_cell
from weft.eager.functions import elementwise as e
from weft.eager.functions import indexing as i
from weft.eager.functions import shape as s
from weft.eager.node import Node
from weft.eager.record import as_node, record
from weft.support.errors import InvalidInputError


def assign(cell: Any, result: Any, what: str) -> Any:
    """Make ``cell`` refer to ``result``, converted to its dtype; the shapes agree."""
    check_in_place(cell, what)
    spec = spec_of_cell(cell)
    node = node_of(result) if isinstance(result, Cell) else as_node(result, spec.dtype)
    have = node.sig.out
    if have.shape != spec.shape:
        raise InvalidInputError(f"{what}: the result does not have the shape of the tensor",
                                expected=str(spec.shape), got=str(have.shape))
    if have.dtype.rank > spec.dtype.rank:
        raise InvalidInputError(f"{what}: the result cannot be converted to the tensor's dtype",
                                expected=repr(spec.dtype), got=repr(have.dtype))
    change(cell, e.cast(node, spec.dtype))
    return cell


def change(cell: Any, node: Node) -> None:
    """Make ``cell`` refer to ``node``, and write the value to the tensor that it is a part of."""
    bind(cell, node)
    view = cell._base  # noqa: SLF001 - cells are of this package
    if view is None:
        return
    ref, key = view
    base = ref()
    if base is None:
        return
    if key is None:
        bind(base, alias(node))
        return
    check_in_place(base, "a change of a part")
    change(base, node_of(i.setitem(base, key, cell)))


class InPlace:
    """In-place forms, which return the tensor."""

    __slots__ = ()

    def __iadd__(self, other: Any) -> Any:
        return assign(self, e.add(self, other), "+=")

    def __isub__(self, other: Any) -> Any:
        return assign(self, e.sub(self, other), "-=")

    def __imul__(self, other: Any) -> Any:
        return assign(self, e.mul(self, other), "*=")

    def __itruediv__(self, other: Any) -> Any:
        return assign(self, e.div(self, other), "/=")

    def __ipow__(self, other: Any) -> Any:
        return assign(self, e.pow(self, other), "**=")

    def add_(self, other: Any, *, alpha: Any = 1) -> Any:
        """``self + alpha * other``, in place."""
        return assign(self, e.add(self, other, alpha=alpha), "add_")

    def sub_(self, other: Any, *, alpha: Any = 1) -> Any:
        """``self - alpha * other``, in place."""
        return assign(self, e.sub(self, other, alpha=alpha), "sub_")

    def mul_(self, other: Any) -> Any:
        """``self * other``, in place."""
        return assign(self, e.mul(self, other), "mul_")

    def div_(self, other: Any) -> Any:
        """``self / other``, in place."""
        return assign(self, e.div(self, other), "div_")

    def pow_(self, exponent: Any) -> Any:
        """``self ** exponent``, in place."""
        return assign(self, e.pow(self, exponent), "pow_")

    def neg_(self) -> Any:
        """``-self``, in place."""
        return assign(self, e.neg(self), "neg_")

    def abs_(self) -> Any:
        """The absolute value, in place."""
        return assign(self, e.abs(self), "abs_")

    def exp_(self) -> Any:
        """The exponential, in place."""
        return assign(self, e.exp(self), "exp_")

    def log_(self) -> Any:
        """The logarithm, in place."""
        return assign(self, e.log(self), "log_")

    def sqrt_(self) -> Any:
        """The square root, in place."""
        return assign(self, e.sqrt(self), "sqrt_")

    def relu_(self) -> Any:
        """``max(self, 0)``, in place."""
        return assign(self, e.relu(self), "relu_")

    def sigmoid_(self) -> Any:
        """The sigmoid, in place."""
        return assign(self, e.sigmoid(self), "sigmoid_")

    def tanh_(self) -> Any:
        """The hyperbolic tangent, in place."""
        return assign(self, e.tanh(self), "tanh_")

    def clamp_(self, min: Any = None, max: Any = None) -> Any:
        """Limited to a range, in place."""
        return assign(self, e.clamp(self, min, max), "clamp_")

    def lerp_(self, end: Any, weight: Any) -> Any:
        """``self + weight * (end - self)``, in place."""
        return assign(self, e.lerp(self, end, weight), "lerp_")

    def addcmul_(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
        """``self + value * tensor1 * tensor2``, in place."""
        return assign(self, e.addcmul(self, tensor1, tensor2, value=value), "addcmul_")

    def addcdiv_(self, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
        """``self + value * tensor1 / tensor2``, in place."""
        return assign(self, e.addcdiv(self, tensor1, tensor2, value=value), "addcdiv_")

    def masked_fill_(self, mask: Any, value: Any) -> Any:
        """``value`` where ``mask`` holds, in place."""
        return assign(self, s.masked_fill(self, mask, value), "masked_fill_")

    def scatter_(self, dim: int, index: Any, src: Any) -> Any:
        """Elements written at indices along an axis, in place."""
        return assign(self, i.scatter(self, dim, index, src), "scatter_")

    def scatter_add_(self, dim: int, index: Any, src: Any) -> Any:
        """Elements added at indices along an axis, in place."""
        return assign(self, i.scatter_add(self, dim, index, src), "scatter_add_")

    def index_add_(self, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
        """Slices added at indices along an axis, in place."""
        return assign(self, i.index_add(self, dim, index, source, alpha=alpha), "index_add_")

    def zero_(self) -> Any:
        """All elements 0."""
        return self.fill_(0)

    def fill_(self, value: Any) -> Any:
        """All elements ``value``."""
        spec = spec_of_cell(self)  # type: ignore[arg-type]
        number = as_node(value, spec.dtype)
        number = e.cast(number, spec.dtype)
        attrs = {"shape": spec.shape}
        full: Node = record("full", (number,), attrs)
        check_in_place(self, "fill_")  # type: ignore[arg-type]
        change(self, full)
        return self

    def copy_(self, src: Any, non_blocking: bool = False) -> Any:  # noqa: ARG002 - torch's argument
        """The elements of ``src``, broadcast and converted to the dtype of this tensor."""
        check_in_place(self, "copy_")  # type: ignore[arg-type]
        spec = spec_of_cell(self)  # type: ignore[arg-type]
        node = e.cast(as_node(src, spec.dtype), spec.dtype)
        if node.sig.out.shape != spec.shape:
            node = record("broadcast_to", (node,), {"shape": spec.shape})
        change(self, node)
        return self
