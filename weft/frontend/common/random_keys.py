"""Keys for the random operators of an imported model."""

from __future__ import annotations

from weft.frontend.common.typed import typed
from weft.ir import Expr, Span, TupleGetItem, Var


class RandomKeys:
    """One key for each random operator, split from an input that the model gains.

    A model that draws numbers in training gets one more input, ``name``, of type
    ``Tensor[(2,), uint32]``. The same key draws the same numbers; pass a new one in each call.
    """

    def __init__(self, name: str = "key") -> None:
        self.name = name
        self.parameter: Var | None = None
        self._rest: Expr | None = None

    def next(self, span: Span | None) -> Expr:
        """A key that no other operator gets."""
        from weft.op.random.threefry import KEY_TYPE, threefry_split

        if self._rest is None:
            self.parameter = Var(self.name, KEY_TYPE, span=span, checked_type=KEY_TYPE)
            self._rest = self.parameter
        pair = typed(threefry_split(self._rest, span=span))
        self._rest = typed(TupleGetItem(pair, 0, span=span))
        return typed(TupleGetItem(pair, 1, span=span))
