"""``weft.Tensor``: a tensor that behaves like torch's, is recorded lazily and runs compiled."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from weft.eager import backward as reverse
from weft.eager.cell import (
    MODE,
    Cell,
    alias,
    bind,
    check_in_place,
    detached,
    leaf_of,
    new_cell,
    node_of,
    spec_of_cell,
)
from weft.eager.complex_numbers import lowered
from weft.eager.conversions import dtype_of, is_device
from weft.eager.copies import Copies
from weft.eager.device import CPU, device, on_host, resolved
from weft.eager.dtypes import dtype
from weft.eager.evaluate import value_of
from weft.eager.functions import elementwise as e
from weft.eager.functions.indexing import getitem, setitem
from weft.eager.functions.keys import part_of
from weft.eager.functions.viewing import Views
from weft.eager.in_place import InPlace
from weft.eager.in_place_forms import InPlaceForms
from weft.eager.methods import Functions, Operators
from weft.eager.node import DeviceMismatchError, Node, unpaired
from weft.eager.placement import beside, moved, new_value
from weft.eager.record import as_array, as_node, wrap
from weft.eager.signature import checked
from weft.eager.standard import Standard
from weft.support.errors import InvalidInputError
from weft.support.markup import text_html


class Size(tuple[int, ...]):
    """The shape of a tensor: a tuple with ``numel()``."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"weft.Size({list(self)})"


class Tensor(Operators, InPlace, InPlaceForms, Views, Copies, Functions, Standard, Cell):
    """An array of numbers, with the operators and methods of torch's tensors.

    An operator is recorded and typed at once, so that errors of shapes are raised at its line; it
    runs when a value is looked at (``numpy()``, ``item()``, ``print``, ``if``), together with all
    that was recorded before, as one compiled program. Values never change: an in-place method makes
    the tensor, and what it is a view of, refer to a new value, which other views of that tensor
    show when they are read next.
    """

    __slots__ = ("__dict__",)

    def __init__(self, data: Any = (), *, requires_grad: bool = False) -> None:
        node = data if isinstance(data, Node) else alias_of(data)
        self._node = node
        self._grad = self._hooks = self._view = self._memory = None
        if requires_grad:
            self.requires_grad_()

    # -- what it is ----------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The sizes of the axes."""
        return Size(self._node.sig.out.shape)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis."""
        return self.shape if dim is None else self.shape[dim]

    @property
    def dtype(self) -> dtype:
        return self._node.sig.out.dtype

    @property
    def ndim(self) -> int:
        return len(self._node.sig.out.shape)

    def dim(self) -> int:
        """The number of axes."""
        return self.ndim

    def numel(self) -> int:
        """The number of elements."""
        return self.shape.numel()

    nelement = numel

    def element_size(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self.numel() * self.dtype.itemsize

    @property
    def device(self) -> device:
        """Where the elements are."""
        return self._node.sig.out.device

    @property
    def is_cuda(self) -> bool:
        """Whether the tensor is on a GPU."""
        return self._node.sig.out.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        """Whether the tensor is in host memory."""
        return self._node.sig.out.device is CPU

    def get_device(self) -> int:
        """The number of the device, -1 for the CPU."""
        index = self._node.sig.out.device.index
        return -1 if index is None else index

    def is_floating_point(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.dtype.is_floating_point

    # -- gradients -----------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        """Whether ``backward`` computes a gradient for this tensor."""
        return self._place_in_graph is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    @checked
    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Make this tensor a leaf that ``backward`` computes a gradient for, or not."""
        if requires_grad and self.dtype.rank < 2:
            raise InvalidInputError("only floating-point and complex tensors have gradients",
                                    got=repr(self.dtype))
        if self.requires_grad == requires_grad:
            return self
        if not requires_grad and not self.is_leaf:
            raise InvalidInputError("requires_grad of a result cannot be cleared",
                                    help="use detach()")
        node = alias(node_of(self))  # a view has the present node of its base now
        node.grad = weakref.ref(self) if requires_grad else None
        self._node = node
        if node.value is None:
            MODE.pending.append(weakref.ref(self))
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether the tensor is no result of operators through which gradients flow."""
        grad = self._place_in_graph
        return grad is None or isinstance(grad, weakref.ref)

    @property
    def _place_in_graph(self) -> Any:
        """``Node.grad`` of the present value."""
        node = self._node if self._view is None or MODE.trace is not None else node_of(self)
        return getattr(node, "grad", None)

    @property
    def grad_fn(self) -> str | None:
        """The name of the operator that gradients flow through, ``None`` for a leaf."""
        return None if self.is_leaf else f"<{node_of(self).sig.name}>"

    @property
    def grad(self) -> Tensor | None:
        """What ``backward`` has accumulated."""
        if MODE.trace is not None:
            MODE.trace.grad(self, is_read=True)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None and (not isinstance(value, Tensor)
                                  or spec_of_cell(value) is not spec_of_cell(self)):
            raise InvalidInputError("a gradient has the shape, dtype and device of its tensor",
                                    expected=_brief(self), got=_brief(value))
        if MODE.trace is not None:
            MODE.trace.grad(self, is_read=False)
        self._grad = value

    @checked
    def backward(self, gradient: Any = None, retain_graph: bool | None = None,
                 create_graph: bool = False) -> None:
        """Add the gradient of this tensor to the ``grad`` of the leaves it was computed from.

        ``gradient`` is the gradient of a tensor of several elements. ``retain_graph`` allows a
        second ``backward``, ``create_graph`` gradients of the gradients.
        """
        given = None if gradient is None else beside(
            e.cast(as_node(gradient), self.dtype), self.device)
        reverse.backward([self], [given], create_graph=create_graph,
                         retain_graph=create_graph if retain_graph is None else retain_graph)

    def detach(self) -> Tensor:
        """The same value outside the graph of gradients; changing it in place changes this."""
        return detached(self)

    def detach_(self) -> Tensor:
        """Take this tensor, which is no view, out of the graph of gradients."""
        if self._view is not None:
            raise InvalidInputError("a view is detached in place", help="use detach()")
        self._node = alias(node_of(self))
        if self._node.value is None:
            MODE.pending.append(weakref.ref(self))
        return self

    @property
    def data(self) -> Tensor:
        """The value outside the graph of gradients; assigning to it changes the value alone."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        node = alias(as_node(value))
        if node.sig.out is spec_of_cell(self):
            bind(self, node, keeps_graph=True)
            return
        # Data of another shape or dtype: other tensors keep theirs.
        leaf = leaf_of(self._node)
        self._view = self._memory = None
        self._node = node
        node.grad = leaf
        if node.value is None:
            MODE.pending.append(weakref.ref(self))

    @checked
    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Hook:
        """Call ``hook(gradient)`` when the gradient of this tensor is known; it may replace it."""
        if not self.requires_grad:
            raise InvalidInputError("a hook on a tensor that does not require a gradient")
        if self.is_leaf:
            self._hooks = table = {} if self._hooks is None else self._hooks
        else:
            node = node_of(self)
            node.extra = table = {} if node.extra is None else node.extra
        number = max(table, default=0) + 1
        table[number] = hook
        return Hook(table, number)

    def retain_grad(self) -> None:
        """Keep the gradient of a tensor that is not a leaf in ``grad``."""
        if not (self.requires_grad and self.is_leaf):
            me = weakref.ref(self)

            def keep(gradient: Tensor) -> None:
                cell = me()
                if cell is not None:
                    cell.grad = gradient

            self.register_hook(keep)

    # -- values --------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray:
        """The value as an array that cannot be written to; ``.copy()`` of it can."""
        if (self._view is not None or getattr(self._node, "grad", None)) and self.requires_grad \
                and MODE.grad:
            raise InvalidInputError("numpy() of a tensor that requires a gradient",
                                    help="use .detach().numpy()")
        return self._host_array()

    def _array(self) -> np.ndarray:
        node = node_of(self)
        array = on_host(value_of(node), node.sig.out.device)
        array = unpaired(array) if node.sig.out.dtype.is_complex else array.view()
        array.flags.writeable = False
        return array

    def _host_array(self) -> np.ndarray:
        """The value that NumPy shares; ``DeviceMismatchError`` for a tensor of another device."""
        if self._node.sig.out.device is not CPU:
            raise DeviceMismatchError("a tensor on a device becomes no NumPy array unnoticed",
                                      expected="cpu", got=str(self.device),
                                      help="copy it to the host first: x.cpu().numpy()")
        return self._array()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self._host_array()
        return np.array(array, dtype=dtype) if copy else np.asarray(array, dtype)

    def item(self) -> Any:
        """The element of a tensor that has only one, as a number of Python."""
        node = node_of(self)
        spec = node.sig.out
        array = self._array() if spec.dtype.is_complex else on_host(value_of(node), spec.device)
        if array.size != 1:
            raise InvalidInputError("item() of a tensor with several elements",
                                    got=f"shape {tuple(self.shape)}", help="use tolist()")
        return array.item()

    def tolist(self) -> Any:
        """The elements as nested lists of numbers."""
        array = self._array()
        return array.astype(np.float32).tolist() if self.dtype == "bfloat16" else array.tolist()

    def __bool__(self) -> bool:
        if self.numel() != 1:
            raise InvalidInputError("the truth of a tensor with several elements",
                                    got=f"shape {tuple(self.shape)}", help="use .any() or .all()")
        return bool(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        value = self.item()
        if not isinstance(value, int):
            raise TypeError(f"a tensor of {self.dtype} is not an index")
        return value

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a tensor without axes")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over a tensor without axes")
        return iter(self.unbind(0))

    def __contains__(self, value: Any) -> bool:
        return bool((self == value).any())

    def __getitem__(self, key: Any) -> Any:
        return getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        is_number = isinstance(value, (bool, int, float, complex))
        check_in_place(self, "assignment to a part", fills=is_number)
        if not _is_part(value, self, key):  # as after ``x[key] += 1``, which has changed it
            bind(self, setitem(self, key, value))

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        # NumPy exports read-only arrays from version 1 of DLPack on only.
        return self._shared().__dlpack__(stream=stream, max_version=max_version,
                                         dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> Any:
        return self._shared().__dlpack_device__()

    def _shared(self) -> np.ndarray:
        """The value for a compiled model or another library."""
        node = node_of(self)
        if MODE.trace is not None and node.value is None:
            MODE.trace.look(node, "a tensor of a traced function goes into a compiled model or "
                            "another library", "call the layer that was compiled: it becomes a "
                            "part of this program")
        value = value_of(node)
        return unpaired(value) if node.sig.out.dtype.is_complex else value

    def __repr__(self) -> str:
        text = np.array2string(_shown(self._array()), separator=", ", prefix="tensor(",
                               threshold=1000, edgeitems=3)
        if self.device is not CPU:
            text += f", device='{self.device}'"
        if self.dtype not in ("float32", "int64", "bool", "complex64"):
            text += f", dtype={self.dtype}"
        if self.grad_fn is not None:
            text += f", grad_fn={self.grad_fn}"
        elif self.requires_grad:
            text += ", requires_grad=True"
        return f"tensor({text})"

    def _repr_html_(self) -> str:
        return text_html(f"{self!r}\nshape {tuple(self.shape)}")

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if not self.ndim else format(str(self), spec)

    # -- conversions ---------------------------------------------------------------------------

    @checked
    def to(self, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False,  # noqa: ARG002 - torch's
           copy: bool = False, memory_format: Any = None) -> Tensor:  # noqa: ARG002 - row-major
        """The tensor in another dtype, or on another device: ``to(weft.float16)``,
        ``to("cuda:1")``, ``to(other)``. It is the tensor itself where nothing changes.

        A copy is in order with the work of the device, also with ``non_blocking``.
        """
        flags = []
        for arg in args:
            if isinstance(arg, Tensor):
                dtype, device = arg.dtype, arg.device
            elif is_device(arg):
                device = arg
            elif isinstance(arg, bool):
                flags.append(arg)
            elif arg is not None:
                dtype = arg
        node = node_of(self)
        where = node.sig.out.device if device is None else resolved(device)
        found = moved(node if dtype is None else e.cast(node, dtype_of(dtype)), where)
        if found is not node:
            return wrap(found)
        return self.clone() if copy or flags[1:] == [True] else self

    type_as = to

    @checked
    def type(self, dtype: Any = None) -> Any:
        """The name of the dtype, or this tensor in another."""
        return f"weft.{self.dtype.name}" if dtype is None else self.to(dtype)

    @checked
    def cpu(self, memory_format: Any = None) -> Tensor:  # noqa: ARG002 - row-major
        """The tensor in host memory."""
        return self.to(device=CPU)

    @checked
    def cuda(self, device: Any = None, non_blocking: bool = False,  # noqa: ARG002 - of torch
             memory_format: Any = None) -> Tensor:  # noqa: ARG002 - row-major
        """The tensor on a GPU; ``NoDeviceError`` without one."""
        return self.to(device="cuda" if device is None else device)

    clone = e.clone


class Hook:
    """What ``register_hook`` returns; ``remove()`` takes the hook away."""

    def __init__(self, table: dict[int, Any], number: int) -> None:
        self._table = table
        self._number = number

    def remove(self) -> None:
        """Do not call the hook any more."""
        self._table.pop(self._number, None)


def _is_part(value: Any, cell: Cell, key: Any) -> bool:
    """Whether a tensor is the part of another one at a key."""
    view = value._view if isinstance(value, Cell) else None  # noqa: SLF001 - of this package
    if view is None:
        return False
    own = cell._view  # noqa: SLF001
    base, ops = (cell, ()) if own is None else (own.base, own.ops)
    if view.base is not base or view.ops[:-1] != ops:
        return False
    return part_of(key, spec_of_cell(cell).shape) == view.ops[-1]


def alias_of(data: Any) -> Node:
    """A node of its own with the value of a tensor or of data."""
    if isinstance(data, Cell):
        return alias(node_of(data))
    return new_value(*as_array(data))


def _brief(value: Any) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    where = "" if value.device is CPU else f", {value.device}"
    return f"{value.shape}, {value.dtype}{where}"


def _shown(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


Cell.plain = Tensor
Cell.made = partial(new_cell, Tensor)
Cell.lowered = lowered

__all__ = ["Hook", "Size", "Tensor"]
