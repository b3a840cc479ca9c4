"""``weft.support.dataclass`` against the decorator of the standard library, over random classes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
import typing
import weakref
from abc import ABC, abstractmethod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.support.dataclass import dataclass
from weft.support.dataclass_methods import LazyMethod, _code_of

_OPTIONS = ("init", "repr", "eq", "order", "unsafe_hash", "frozen", "match_args", "kw_only",
            "slots")


@st.composite
def _field(draw):
    """(annotation, class attribute): plain, default, or ``field(...)``."""
    kind = draw(st.sampled_from(["none", "none", "default", "field", "field"]))
    hint = draw(st.sampled_from(["int", "str | None", int, "typing.ClassVar[int]", "list[int]"]))
    if kind == "none":
        return hint, None
    if kind == "default":
        return hint, lambda: 7
    options = {}
    for name in ("init", "repr", "compare", "kw_only"):
        if draw(st.booleans()):
            options[name] = draw(st.booleans())
    if draw(st.booleans()):
        options["hash"] = draw(st.sampled_from([None, True, False]))
    first = draw(st.sampled_from([{}, {"default": 3}, {"default_factory": lambda: 5},
                                  {"metadata": {"doc": "x"}}]))
    if isinstance(hint, str) and "ClassVar" in hint:
        return hint, lambda: 7
    return hint, lambda: dataclasses.field(**options, **first)


@st.composite
def _methods(draw):
    chosen = {}
    if draw(st.integers(0, 4)) == 0:
        chosen["__post_init__"] = _note
    if draw(st.integers(0, 6)) == 0:
        chosen["__eq__"] = lambda self, other: type(self) is type(other)
    if draw(st.integers(0, 6)) == 0:
        chosen["__hash__"] = lambda self: 11
    if draw(st.integers(0, 6)) == 0:
        chosen["__repr__"] = lambda self: "mine"
    return chosen


_noted = []


def _note(value):
    _noted.append(type(value).__name__)


@st.composite
def _classes(draw):
    """A chain of one to three classes: fields, methods, options and decorator of each."""
    levels = []
    for _ in range(draw(st.integers(1, 3))):
        names = draw(st.lists(st.sampled_from("abcdef"), max_size=4, unique=True))
        options = {o: draw(st.booleans()) for o in _OPTIONS if draw(st.integers(0, 2)) == 0}
        if draw(st.integers(0, 3)):  # rare options, and a mixture of frozen, end many chains early
            options.pop("order", None)
            options.pop("unsafe_hash", None)
            options["frozen"] = levels[0][2].get("frozen", False) if levels else draw(st.booleans())
        levels.append(({n: draw(_field()) for n in names}, draw(_methods()), options,
                       draw(st.integers(0, 3)) > 0))
    return levels


def _built(levels, *, ours: bool):
    """The last class of the chain, and whether each level is a data class of its own."""
    base = object
    for number, (fields, methods, options, is_decorated) in enumerate(levels):
        names = {"__module__": __name__, "__qualname__": f"C{number}", **methods}
        names["__annotations__"] = {n: hint for n, (hint, _) in fields.items()}
        names |= {n: attribute() for n, (_, attribute) in fields.items() if attribute is not None}
        if is_decorated or number == 0:
            made = type(f"C{number}", (base,), names)
            base = (dataclass if ours else dataclasses.dataclass)(**options)(made)
        else:
            base = type(f"C{number}", (base,), {"__module__": __name__, **methods})
    return base


def _attempt(function):
    try:
        return "value", function()
    except Exception as error:  # noqa: BLE001 - compared
        return "error", type(error), str(error)


def _description(kind):
    """What can be seen of a class without calling it."""
    own = {n for n in vars(kind) if n not in {"__doc__", "__weakref__", "__dict__", "__module__"}}
    return {
        "names": own,
        "signature": _attempt(lambda: str(inspect.signature(kind))),
        "fields": [(f.name, f.type, f.default, f.init, f.repr, f.hash, f.compare, f.kw_only,
                    dict(f.metadata)) for f in dataclasses.fields(kind)],
        "slots": kind.__dict__.get("__slots__"),
        "match": getattr(kind, "__match_args__", None),
        "hashable": kind.__hash__ is not None,
        "params": repr(kind.__dataclass_params__),
        "hints": _attempt(lambda: typing.get_type_hints(kind.__init__)),
    }


def _behaviour(kind, arguments, names):
    """What calls of the class and of its methods give."""
    del _noted[:]
    made = _attempt(lambda: kind(*arguments, **names))
    if made[0] == "error":
        return made, list(_noted)
    x, y = made[1], kind(*arguments, **names)
    every = [f.name for f in dataclasses.fields(kind)]
    seen = [list(_noted)]
    seen += [_attempt(lambda n=n: getattr(x, n)) for n in every]
    seen.append(_attempt(lambda: repr(x)) if kind.__repr__ is not object.__repr__ else None)
    seen += [_attempt(lambda: x == y), _attempt(lambda: x != y), x == 1]
    seen.append(_attempt(lambda: hash(x) == hash(y)))
    if kind.__hash__ is not object.__hash__:
        seen.append(_attempt(lambda: hash(x)))
    seen += [_attempt(lambda: dataclasses.replace(x) == x), _attempt(lambda: x < y)]
    seen += [_attempt(lambda: dataclasses.asdict(x)), dataclasses.is_dataclass(x)]
    seen += [_attempt(lambda n=n: setattr(x, n, 9)) for n in every]
    seen += [_attempt(lambda n=n: delattr(y, n)) for n in every]
    return seen


@settings(max_examples=250, deadline=None, report_multiple_bugs=False)
@given(_classes(), st.integers(0, 4), st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3)))
def test_classes_behave_as_those_of_the_standard_decorator(levels, count, names):
    theirs = _attempt(lambda: _built(levels, ours=False))
    ours = _attempt(lambda: _built(levels, ours=True))
    assert ours[0] == theirs[0]
    if ours[0] == "error":
        assert ours == theirs
        return
    arguments = tuple(range(count))
    missing = {f.name: 1 for f in dataclasses.fields(theirs[1])
               if f.init and f.default is dataclasses.MISSING}
    for given_names in (names, missing):
        positional = () if given_names is missing else arguments
        assert (_behaviour(ours[1], positional, given_names)
                == _behaviour(theirs[1], positional, given_names))
    assert _description(ours[1]) == _description(theirs[1])
    assert _description(_built(levels, ours=True)) == _description(theirs[1])  # before any call


@dataclass(frozen=True, slots=True)
class _Point:
    x: int
    y: int = 2
    tags: tuple[str, ...] = dataclasses.field(default=(), compare=False)

    @property
    def total(self) -> int:
        return self.x + self.y


@dataclass(frozen=True, slots=True)
class _Named(_Point):
    name: str = "n"


@dataclasses.dataclass(frozen=True)
class _StandardChild(_Point):
    z: int = 3


@dataclass
class _Tree:
    children: list[_Tree] = dataclasses.field(default_factory=list)
    self: int = 0  # a field of the name of the receiver


def test_methods_replace_themselves_at_the_first_use():
    @dataclass(frozen=True)
    class Fresh:
        a: int

    lazy = {n for n, v in vars(Fresh).items() if isinstance(v, LazyMethod)}
    assert lazy == {"__init__", "__eq__", "__hash__", "__repr__"}
    made = Fresh(1)
    assert not isinstance(vars(Fresh)["__init__"], LazyMethod)
    assert isinstance(vars(Fresh)["__eq__"], LazyMethod)
    assert made == Fresh(1)
    assert hash(made) == hash((1,))
    assert repr(made).endswith("Fresh(a=1)")
    assert not any(isinstance(v, LazyMethod) for v in vars(Fresh).values())


def test_classes_of_one_shape_share_code_under_their_own_names():
    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0

    @dataclass(frozen=True, slots=True)
    class Range:
        low: int
        high: int = 9

    compiled = _code_of.cache_info().misses
    assert Point(x=1) == Point(1, 0)
    assert _code_of.cache_info().misses > compiled
    point = _code_of.cache_info().misses
    assert repr(Range(high=3, low=2)) == f"{Range.__qualname__}(low=2, high=3)"
    assert _code_of.cache_info().misses == point + 1  # that of __repr__
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'low'"):
        Range()


def test_a_method_that_was_replaced_before_its_first_use_stays_replaced():
    @dataclass
    class Fresh:
        a: int

    lazy = vars(Fresh)["__init__"]
    Fresh.__init__ = lambda self: None
    assert lazy.__get__(None, Fresh).__name__ == "__init__"
    assert not hasattr(Fresh(), "a")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_and_copy(protocol):
    for value in (_Point(1), _Named(1, 2, ("t",), "q"), _Tree([_Tree()]), _StandardChild(1)):
        if protocol >= 2:  # slots need it
            assert pickle.loads(pickle.dumps(value, protocol)) == value
        assert copy.copy(value) == value == copy.deepcopy(value)
        assert copy.deepcopy(value) is not value


def test_match_statements_and_inheritance():
    match _Named(1, 4):
        case _Point(x, y):
            assert (x, y) == (1, 4)
        case _:
            pytest.fail("no match")
    assert _Named.__slots__ == ("name",)
    assert not hasattr(_Named(1), "__dict__")
    assert _Named(1).total == 3
    assert _StandardChild(1) == _StandardChild(x=1, y=2, z=3)
    assert _Point(1) != _Named(1)


def test_repr_of_an_object_inside_itself():
    tree = _Tree()
    tree.children.append(tree)
    assert repr(tree) == "_Tree(children=[...], self=0)"


def test_frozen_classes_refuse_all_names_and_their_children_only_fields():
    class Child(_Point):
        pass

    for kind in (_Point, _Named, _StandardChild):
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'other'"):
            kind(1).other = 2
        with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'other'"):
            del kind(1).other
    child = Child(1)
    child.other = 2
    del child.other
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        child.x = 2


def test_weak_references_and_slots_of_bases():
    class Base:
        __slots__ = ("__weakref__", "kept")

    @dataclass(slots=True, eq=False)
    class Child(Base):
        kept: int
        other: int

    child = Child(1, 2)
    assert Child.__slots__ == ("other",)
    assert weakref.ref(child)() is child


def test_abstract_methods_are_recounted():
    class Base(ABC):
        @property
        @abstractmethod
        def size(self) -> int: ...

    @dataclass
    class Child(Base):
        size: int = 4

    assert Child().size == 4


def test_super_init_and_explicit_calls():
    @dataclass
    class Base:
        a: int

    class Plain(Base):
        def __init__(self) -> None:
            super().__init__(5)

    assert Plain().a == 5
    other = object.__new__(Base)
    Base.__init__(other, 6)
    assert other.a == 6


def test_rare_features_go_to_the_standard_decorator():
    @dataclass(order=True)
    class Ordered:
        a: int
        scale: dataclasses.InitVar[int] = 2
        _: dataclasses.KW_ONLY = None
        b: int = 1

        def __post_init__(self, scale: int) -> None:
            self.a *= scale

    assert Ordered(1, 4).a == 4
    assert Ordered(1) < Ordered(2)
    assert not any(isinstance(v, LazyMethod) for v in vars(Ordered).values())


@pytest.mark.skipif(sys.version_info < (3, 13), reason="copy.replace is new in Python 3.13")
def test_copy_replace():
    assert copy.replace(_Point(1), x=4) == _Point(4)
