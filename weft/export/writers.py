"""Writers of operators: what an operator is in another format, and what its writer knows."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from weft.codegen.cost_model import tensor_types
from weft.ir import Call, TensorType
from weft.support.errors import RegistryError

# The name of a value in the other format, or those of a tuple.
Value: TypeAlias = "str | Sequence[Value]"
C = TypeVar("C", bound="TypedCall")


class Writers(Generic[C]):
    """The writers of a format, which the modules of ``package`` register.

    A writer emits a call and names its result; ``None`` if the format cannot say a call like it.
    """

    def __init__(self, form: str, package: str) -> None:
        self._form, self._package = form, package
        self._by_operator: dict[str, Callable[[C], Value | None]] = {}
        self._is_loaded = False

    def writes(self, *operators: str
               ) -> Callable[[Callable[[C], Value | None]], Callable[[C], Value | None]]:
        """Register the decorated function as the writer of ``operators``."""

        def wrap(function: Callable[[C], Value | None]) -> Callable[[C], Value | None]:
            for name in operators:
                if name in self._by_operator:
                    raise RegistryError(
                        f"the {self._form} writer of {name!r} is registered twice")
                self._by_operator[name] = function
            return function

        return wrap

    def of(self, operator: str) -> Callable[[C], Value | None] | None:
        """The writer of an operator, if it has one."""
        if not self._is_loaded:
            package = importlib.import_module(self._package)
            for found in pkgutil.iter_modules(package.__path__):
                importlib.import_module(f"{self._package}.{found.name}")
            self._is_loaded = True
        return self._by_operator.get(operator)


class TypedCall:
    """A typed call whose arguments are written."""

    def __init__(self, call: Call, args: Sequence[Value]) -> None:
        self.call = call
        self.args = args
        self.reason = ""

    @property
    def name(self) -> str:
        """The name of the operator."""
        return self.call.op.name  # type: ignore[attr-defined]

    @property
    def attrs(self) -> Any:
        """The attributes of the call."""
        return self.call.attrs

    @property
    def inputs(self) -> list[str]:
        """The tensors among the arguments, those of tuples too."""
        return flattened(self.args)

    @property
    def types(self) -> list[TensorType]:
        """The types of ``inputs``."""
        return [t for a in self.call.args for t in tensor_types(a.checked_type)]

    @property
    def results(self) -> list[TensorType]:
        """The types of the results."""
        return list(tensor_types(self.call.checked_type))

    @property
    def result(self) -> TensorType:
        """The type of the (first) result."""
        return self.results[0]

    def no_form(self, reason: str) -> None:
        """Say why the format has no form of this call; a writer returns the result."""
        self.reason = reason


def flattened(value: Value) -> list[str]:
    """The names in a value, in order."""
    if isinstance(value, str):
        return [value]
    return [name for part in value for name in flattened(part)]
