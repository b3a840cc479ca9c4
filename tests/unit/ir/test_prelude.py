"""The prelude: every function evaluated, and the module around it."""

from __future__ import annotations

import numpy as np
import pytest

from weft import op
from weft.ir import (
    Call,
    Function,
    IRModule,
    Prelude,
    assert_structural_equal,
    const,
    import_prelude,
    infer_type,
    parse,
    prelude,
    verify_module,
)
from weft.ir.types import TypeCall
from weft.support.errors import ParseError, RegistryError
from weft.transform.analysis.reference import Data, evaluate

FUNCTIONS = (
    "id compose flip hd tl nth length update map foldl foldr foldr1 sum concat filter zip rev "
    "map_accumr map_accuml unfoldr unfoldl tmap size iterate"
)
L123 = "Cons(1, Cons(2, Cons(3, Nil())))"
L45 = "Cons(4, Cons(5, Nil()))"
SUB = "fn (%a: int32, %b: int32) { %a - %b }"
TREE = "Rose(1, Cons(Rose(2, Nil()), Cons(Rose(3, Nil()), Nil())))"
COUNTDOWN = "fn (%n: int32) { if (%n == 0) { None() } else { Some((%n - 1, %n)) } }"  # 3, 2, 1
RUNNING = "fn (%s: int32, %x: int32) { (%s + %x, %s * %x) }"


def plain(value):
    """Lists as Python lists, other data as tuples, scalars as numbers."""
    if isinstance(value, tuple):
        return tuple(plain(v) for v in value)
    if not isinstance(value, Data):
        return value.item()
    if value.constructor.name in ("Cons", "Nil"):
        items = []
        while value.fields:
            items.append(plain(value.fields[0]))
            value = value.fields[1]
        return items
    return (value.constructor.name, *(plain(f) for f in value.fields))


def run(body: str):
    mod = infer_type(parse(f'import "prelude"\ndef @main() {{ {body} }}'))
    return plain(evaluate(mod, []))


def test_all_functions_are_there_typed_and_well_formed():
    assert sorted(prelude().functions) == sorted(FUNCTIONS.split())
    assert list(prelude().type_definitions) == ["List", "Option", "Tree"]
    assert infer_type(prelude()) is prelude()
    verify_module(prelude())
    assert_structural_equal(parse(str(prelude())), prelude())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("@id(7)", 7),
        ("@compose(fn (%x: int32) { %x * 2 }, fn (%x: int32) { %x + 1 })(3)", 8),
        (f"@flip({SUB})(1, 10)", 9),
        ("@iterate(fn (%x: int32) { %x * 2 }, 5)(1)", 32),
        ("@iterate(fn (%x: int32) { %x * 2 }, 0)(1)", 1),
        (f"@hd({L123})", 1),
        (f"@tl({L123})", [2, 3]),
        (f"@nth({L123}, 2)", 3),
        (f"@length({L123})", 3),
        (f"@update({L123}, 1, 9)", [1, 9, 3]),
        (f"@map(fn (%x: int32) {{ %x * %x }}, {L123})", [1, 4, 9]),
        (f"@foldl({SUB}, 10, {L123})", 10 - 1 - 2 - 3),
        (f"@foldr({SUB}, 10, {L123})", 1 - (2 - (3 - 10))),
        (f"@foldr1({SUB}, {L123})", 1 - (2 - 3)),
        (f"@sum({L123})", 6),
        (f"@concat({L123}, {L45})", [1, 2, 3, 4, 5]),
        (f"@filter(fn (%x: int32) {{ %x != 2 }}, {L123})", [1, 3]),
        (f"@zip({L123}, {L45})", [(1, 4), (2, 5)]),
        (f"@rev({L123})", [3, 2, 1]),
        (f"@map_accuml({RUNNING}, 1, {L123})", (7, [1, 4, 12])),
        (f"@map_accumr({RUNNING}, 1, {L123})", (7, [6, 8, 3])),
        (f"@unfoldr({COUNTDOWN}, 3)", [3, 2, 1]),
        (f"@unfoldl({COUNTDOWN}, 3)", [1, 2, 3]),
        (f"@size({TREE})", 3),
        (f"@tmap(fn (%x: int32) {{ %x * 10 }}, {TREE})",
         ("Rose", 10, [("Rose", 20, []), ("Rose", 30, [])])),
        (f"@map(@id, {L123})", [1, 2, 3]),  # a generic function where a plain one is asked for
        (f"@map(Some, {L45})", [("Some", 4), ("Some", 5)]),  # and a constructor
    ],
)  # fmt: skip
def test_functions(body, expected):
    assert run(body) == expected


def test_elements_of_any_type_are_inferred():
    text = """
    import "prelude"
    def @main(%x: Tensor[(2, n), float32]) { @map(fn (%t) { nn.relu(%t) }, Cons(%x, Nil())) }
    """
    mod = infer_type(parse(text))
    assert str(mod["main"].checked_type.ret_type) == "List[Tensor[(2, n), float32]]"


def test_names_for_builders():
    p = Prelude(IRModule())
    cons, nil = p.get_ctor("Cons"), p.get_ctor("Nil")
    numbers = Call(cons, (const(1), Call(cons, (const(2), Call(nil, ())))))
    total = Call(p.get_global_var("sum"), (numbers,))
    mod = infer_type(p.mod.with_function("main", Function((), op.add(total, const(1)))))
    assert evaluate(mod, []) == np.int32(4)
    assert TypeCall(p.get_type("List"), ()).func == cons.belongs_to
    with pytest.raises(RegistryError, match="unknown constructor 'Cnos'"):
        p.get_ctor("Cnos")
    with pytest.raises(RegistryError, match="unknown data type 'Lits'"):
        p.get_type("Lits")


def test_importing_twice_changes_nothing_and_conflicts_are_refused():
    once = import_prelude(IRModule())
    assert import_prelude(once).functions == once.functions
    mine = parse("def @map(%x: int32) { %x }")
    with pytest.raises(RegistryError, match="@map of the prelude has another definition"):
        import_prelude(mine)
    mine = parse("type Option[A] { Maybe(A), } def @f(%x: int32) { %x }")
    with pytest.raises(RegistryError, match="data type Option of the prelude"):
        import_prelude(mine)


def test_a_text_may_replace_what_it_imports_but_once():
    mod = parse('import "prelude" def @size(%x: int32) { %x }')
    assert len(mod["size"].type_params) == 0
    with pytest.raises(ParseError, match="@size is defined twice"):
        parse('import "prelude" def @size(%x: int32) { %x } def @size(%x: int32) { %x }')
    with pytest.raises(ParseError, match="unknown library 'prelood'"):
        parse('import "prelood"')


def test_functions_work_together():
    text = """
    import "prelude"
    def @main(%n: int32) {
      @sum(@map(fn (%x: int32) { %x * 2 }, @unfoldl(
        fn (%n: int32) { if (%n == 0) { None() } else { Some((%n - 1, %n)) } }, %n)))
    }
    """
    assert evaluate(infer_type(parse(text)), [np.int32(500)]) == 500 * 501


@pytest.mark.parametrize(("expression", "expected"), [
    ("@nat_to_int(@nat_add(@int_to_nat(3), @int_to_nat(4)))", 7),
    ("@nat_to_int(@nat_double(Succ(Succ(Zero()))))", 4),
    ("@nat_to_int(@int_to_nat(-2))", 0),
    ("@nat_nth(Cons(5, Cons(6, Nil())), Succ(Zero()))", 6),
    ("@nat_nth(@nat_update(Cons(5, Cons(6, Nil())), Succ(Zero()), 8), Succ(Zero()))", 8),
    ("@nat_iterate(fn (%x: int32) -> int32 { multiply(%x, 2) }, @int_to_nat(5))(1)", 32),
])
def test_natural_numbers(expression, expected):
    mod = infer_type(parse(f'import "nat"\ndef @main() {{ {expression} }}'))
    assert evaluate(mod, []) == expected


def test_a_library_that_is_not_there():
    with pytest.raises(ParseError, match="unknown library") as caught:
        parse('import "real"')
    assert '"nat", "prelude"' in str(caught.value)
