"""The interface of type relations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from weft.ir.attrs import Attrs
from weft.ir.types import TensorType, Type


class RelationContext(Protocol):
    """One call under inference, as its operator's relation sees it.

    A relation reads the known types, states what follows from them, and returns True when it is
    done. It returns False while an argument that it needs is unknown; the solver calls it again
    when that argument changes. Statements unify, so types may flow from output to input.
    """

    op_name: str
    attrs: Attrs

    @property
    def args(self) -> tuple[Type, ...]:
        """Argument types as far as known (``IncompleteType`` where not)."""
        ...

    @property
    def out(self) -> Type:
        """The result type as far as known."""
        ...

    def tensor(self, index: int) -> TensorType | None:
        """Argument ``index`` as a tensor type; ``None`` while unknown; fails on another kind."""
        ...

    def tensors(self, index: int) -> tuple[TensorType, ...] | None:
        """Argument ``index`` as a tuple of tensor types; ``None`` while any is unknown."""
        ...

    def output(self, type_: Type) -> None:
        """State that the result has this type."""
        ...

    def unify_arg(self, index: int, type_: Type) -> None:
        """State that argument ``index`` has this type."""
        ...

    def fail(
        self,
        message: str,
        *,
        arg: int | None = None,
        axis: int | None = None,
        expected: object = None,
        got: object = None,
        help: str | None = None,
    ) -> Any:
        """Record the error and end this relation (always raises)."""
        ...


Relation: TypeAlias = Callable[[RelationContext], bool]
AxesOf: TypeAlias = Callable[[Attrs], Sequence[int] | None]
