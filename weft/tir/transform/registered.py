"""Users' tir passes: checking them, and registering them for every compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from weft.support.errors import LoweringError, OptionError, WeftError
from weft.support.insertion import Insertion, as_insertions, inserted, pass_at
from weft.support.registry import Registry
from weft.support.user_code import location_of

if TYPE_CHECKING:
    from weft.tir.func import PrimFunc

TirPass: TypeAlias = "Callable[[PrimFunc], PrimFunc]"
TirInsertion: TypeAlias = "Insertion[TirPass]"
F = TypeVar("F", bound="TirPass")

INSERTED_TIR_PASSES: Registry[TirInsertion] = Registry("inserted tir pass")


def register_tir_pass(*, after: str | None = None, before: str | None = None
                      ) -> Callable[[F], F]:
    """Make a function ``PrimFunc -> PrimFunc`` run on every kernel, as ``tir_passes`` of
    ``weft.compile`` does for one model.

    Without a position it runs first, on the loop nest as it was scheduled. Raises
    ``RegistryError`` for a name in use.
    """

    def wrap(function: F) -> F:
        insertion: TirInsertion = pass_at(function, after=after, before=before)
        INSERTED_TIR_PASSES.register(tir_pass_name(function), insertion)
        return function

    return wrap


def tir_pass_name(function: TirPass) -> str:
    """The name by which positions, errors and instruments refer to a tir pass."""
    return getattr(function, "__name__", type(function).__name__)


def check_tir_passes(passes: Iterable[TirPass | TirInsertion]) -> tuple[TirInsertion, ...]:
    """Each pass with its position; ``OptionError`` for values that are not functions."""
    made: tuple[TirInsertion, ...] = as_insertions(passes, _check_function, "tir_passes")
    for insertion in made:
        if insertion.phase is not None:
            raise OptionError("tir passes have no phases", got=f"phase={insertion.phase!r}",
                              expected="after=NAME or before=NAME of a tir pass")
    return made


def _check_function(item: object) -> None:
    if not callable(item) or isinstance(item, type):
        raise OptionError("not a tir pass", got=repr(item),
                          expected="a function that takes a PrimFunc and returns one")


def with_insertions(passes: Iterable[TirPass], insertions: Iterable[TirInsertion]
                    ) -> tuple[TirPass, ...]:
    """The passes of a back end with those of the user.

    Insertions without ``after`` and ``before`` run first, in order. Raises ``OptionError`` for a
    position that names an unknown pass.
    """
    guarded = [Insertion(_guarded(i.item), None, i.after, i.before) for i in insertions]
    first = [i.item for i in guarded if i.anchor is None]
    rest = [i for i in guarded if i.anchor is not None]
    return inserted((*first, *passes), rest, tir_pass_name, "the tir pipeline")


def _guarded(function: TirPass) -> TirPass:
    """``function``, whose errors name it, and whose results are verified."""
    name = tir_pass_name(function)

    def run(func: PrimFunc) -> PrimFunc:
        try:
            after = function(func)
        except WeftError:
            raise
        except Exception as error:
            raise LoweringError(f"the tir pass {name} failed", where=location_of(function),
                                got=f"{type(error).__name__}: {error}") from error
        from weft.tir.func import PrimFunc  # a program without users' passes needs it later

        if not isinstance(after, PrimFunc):
            raise LoweringError(f"the tir pass {name} did not return a PrimFunc",
                                where=location_of(function), got=type(after).__name__)
        if after is not func:
            _verify(name, function, after)
            _check_signature(name, function, func, after)
        return after

    run.__name__ = name
    return run


def _check_signature(name: str, function: TirPass, before: PrimFunc, after: PrimFunc) -> None:
    """Raise ``LoweringError`` if a pass changed the signature of the kernel."""
    expected, got = _signature(before), _signature(after)
    if got != expected:
        raise LoweringError(f"the tir pass {name} changed the signature of the kernel",
                            where=location_of(function), expected=expected, got=got)


def _signature(func: PrimFunc) -> str:
    """Name, parameters in order, and number of outputs, as text."""
    from weft.tir.buffer import Buffer

    params = ", ".join(f"{p.name}: {p.dtype}" + (
        f"({', '.join(map(str, p.shape))}) {p.scope}" if isinstance(p, Buffer) else "")
        for p in func.params)
    return f"{func.name}({params}), {func.attrs.get('num_outputs')} outputs"


def _verify(name: str, function: TirPass, func: PrimFunc) -> None:
    from weft.tir.verify import verify_func

    try:
        verify_func(func)
    except WeftError as error:
        raise LoweringError(f"the tir pass {name} left an invalid function",
                            where=location_of(function),
                            notes=error.render().splitlines()) from error
