"""Type inference: every kind of node, both directions, and the wording of errors."""

from __future__ import annotations

import dataclasses

import pytest

from weft import op
from weft.ir import (
    Call,
    Function,
    GlobalVar,
    If,
    IRModule,
    Let,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    as_text,
    assert_structural_equal,
    const,
    infer_expr,
    infer_type,
    parse,
    structural_hash,
    var,
    verify_module,
)
from weft.ir.text.parser import parse_expr
from weft.ir.typing import infer
from weft.ir.typing.constraints import Constraints
from weft.ir.typing.infer import typed_call
from weft.ir.visitor import post_order
from weft.support.errors import TypeInferenceError, WellFormedError

LIST = "type List[A] { Cons(A, List[A]), Nil, }\n"


def type_of(text: str) -> str:
    return str(infer_expr(parse_expr(text)).checked_type)


def main_type(text: str) -> str:
    return str(infer_type(parse(text))["main"].checked_type)


def error_of(text: str) -> TypeInferenceError:
    with pytest.raises(TypeInferenceError) as caught:
        infer_type(parse(text))
    return caught.value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add(const([1, 2, 3], (3,), float32), 1f)", "Tensor[(3,), float32]"),
        ("(1f, (2, True)).1", "(Tensor[(), int32], Tensor[(), bool])"),
        ("fn (%x: Tensor[(2, n), float32]) { exp(%x) }.0", None),
        ("{ let %x = 1f; add(%x, %x) }", "Tensor[(), float32]"),
        ("if (True) { 1f } else { 2f }", "Tensor[(), float32]"),
        ("ref(1f)", "ref(Tensor[(), float32])"),
        ("{ let %r = ref(1f); ref_read(%r) }", "Tensor[(), float32]"),
        ("{ let %r = ref(1f); ref_write(%r, 2f) }", "()"),
        ("fn (%x: float32) { %x }(1f)", "Tensor[(), float32]"),
    ],
)
def test_expressions(text, expected):
    if expected is None:
        with pytest.raises(TypeInferenceError, match="not a tuple"):
            type_of(text)
    else:
        assert type_of(text) == expected


def test_every_node_is_typed():
    text = "def @main(%x: Tensor[(2,), float32]) { let %y = exp(%x); (%y, add(%y, 1f)).1 }"
    fn = infer_type(parse(text))["main"]
    assert all(node.checked_type is not None for node in post_order(fn))


def test_types_flow_into_unannotated_functions():
    fn = infer_expr(parse_expr("fn (%f) { %f }(fn (%x: Tensor[(3,), int8]) { %x })"))
    assert str(fn.checked_type) == "fn(Tensor[(3,), int8]) -> Tensor[(3,), int8]"
    assert "%x: Tensor[(3,), int8]" in str(
        infer_expr(parse_expr("fn (%x) { %x }(const([1, 2, 3], (3,), int8))"))
    )


def test_types_flow_from_results_to_operands():
    # Of ``exp`` the result is declared, the operand is not.
    fn = infer_expr(parse_expr("fn (%x) -> Tensor[(n, 4), float32] { negative(%x) }"))
    assert str(fn.params[0].annotation) == "Tensor[(n, 4), float32]"


def test_parameters_keep_their_identity():
    x = var("x", (2,))
    fn = Function((x,), op.exp(x))
    typed = infer_type(IRModule.from_expr(fn))
    assert typed["main"].params[0] is x
    assert infer_type(typed) is typed


def test_what_a_pass_has_typed_is_not_inferred_again(monkeypatch: pytest.MonkeyPatch):
    typed = infer_type(parse("def @main(%x: Tensor[(2,), float32]) { tanh(exp(%x)) }"))
    fn = typed["main"]
    made = typed.with_function("main", fn.replace(body=fn.body.args[0],
                                                  checked_type=fn.checked_type))
    other = fn.replace(ret_type=var("y", (3,)).annotation, checked_type=fn.checked_type)
    monkeypatch.setattr(infer, "Constraints", None)
    assert infer_type(made) is made
    monkeypatch.undo()
    with pytest.raises(TypeInferenceError, match="another type"):
        infer_type(typed.with_function("main", other))


def test_only_replaced_parts_are_rebuilt():
    x = var("x", (2,))
    left, right = op.exp(x), op.tanh(x)
    fn = infer_type(IRModule.from_expr(Function((x,), op.add(left, right))))["main"]
    kept = fn.body.args[0]
    changed = fn.replace(body=fn.body.replace(args=(kept, op.abs(fn.body.args[1]))))
    again = infer_type(IRModule.from_expr(changed))["main"]
    assert again.body.args[0] is kept
    assert again.body.args[1].args[0] is fn.body.args[1]
    assert again.params[0] is x


def test_a_let_follows_a_new_type_of_its_value():
    x = var("x", (2, 3))
    v = Var("v")
    mod = infer_type(IRModule.from_expr(Function((x,), Let(v, op.exp(x), op.negative(v)))))
    let = mod["main"].body
    replaced = let.replace(value=op.transpose(x))
    fn = infer_type(mod.with_function("main", mod["main"].replace(body=replaced)))["main"]
    assert str(fn.checked_type.ret_type) == "Tensor[(3, 2), float32]"


def test_return_types_of_callees_are_inferred_first():
    text = """
    def @main(%x: Tensor[(2,), float32]) { @double(@double(%x)) }
    def @double(%x: Tensor[(2,), float32]) { add(%x, %x) }
    """
    assert main_type(text) == "fn(Tensor[(2,), float32]) -> Tensor[(2,), float32]"


def test_recursion_through_globals_and_lets():
    text = """
    def @even(%n: int32) -> bool { if (equal(%n, 0)) { True } else { @odd(subtract(%n, 1)) } }
    def @odd(%n: int32) { if (equal(%n, 0)) { False } else { @even(subtract(%n, 1)) } }
    def @main(%x: int32) {
      let %count = fn (%k: int32) { if (equal(%k, 0)) { 0 } else { %count(subtract(%k, 1)) } };
      (%count(%x), @odd(%x))
    }
    """
    mod = infer_type(parse(text))
    assert str(mod["odd"].checked_type.ret_type) == "Tensor[(), bool]"
    assert str(mod["main"].checked_type.ret_type) == "(Tensor[(), int32], Tensor[(), bool])"
    assert infer_type(mod) is mod


def test_callers_follow_a_new_type_of_a_callee():
    text = """
    def @pick(%x: Tensor[(2, 3), float32]) { %x }
    def @main(%x: Tensor[(2, 3), float32]) { exp(@pick(%x)) }
    """
    mod = infer_type(parse(text))
    pick = mod["pick"]
    changed = mod.with_function("pick", pick.replace(body=op.transpose(pick.body)))
    again = infer_type(changed)
    assert str(again["main"].checked_type.ret_type) == "Tensor[(3, 2), float32]"


def test_generic_functions_are_instantiated_at_each_call():
    text = """
    def @id[T](%x: T) -> T { %x }
    def @main(%x: Tensor[(2,), float32]) { (@id(%x), @id(True), @id[int32](3)) }
    """
    assert main_type(text).endswith(
        "-> (Tensor[(2,), float32], Tensor[(), bool], Tensor[(), int32])"
    )


def test_data_types():
    text = (
        LIST
        + """
    def @main(%x: float32) {
      match (Cons(%x, Nil())) { Cons(%h, %t) => { (%h, %t) }, Nil() => { (1f, Nil()) } }
    }
    """
    )
    assert main_type(text).endswith("-> (Tensor[(), float32], List[Tensor[(), float32]])")


@pytest.mark.parametrize(
    ("clauses", "missing"),
    [
        ("Cons(_, _) => { 1f }", "Nil"),
        ("Nil() => { 1f }", "Cons(_, _)"),
        ("Nil() => { 1f }, Cons(_, Nil()) => { 1f }", "Cons(_, Cons(_, _))"),
    ],
)
def test_a_match_covers_every_case(clauses, missing):
    text = f"{LIST}def @main(%l: List[float32]) {{ match (%l) {{ {clauses} }} }}"
    error = error_of(text)
    assert error.got == f"no clause for {missing}"
    assert main_type(text.replace("match (", "match? (")).endswith("float32]")


def test_branches_forget_what_only_one_of_them_knows():
    text = """
    def @main(%c: bool, %x: Tensor[(3,), float32], %y: Tensor[(?,), float32]) {
      if (%c) { %x } else { %y }
    }
    """
    assert main_type(text).endswith("-> Tensor[(?,), float32]")


def test_symbols_are_equal_by_normal_form():
    text = """
    def @f(%x: Tensor[(2*n + 1,), int8]) -> Tensor[(1 + n + n,), int8] { %x }
    def @main(%x: Tensor[(2*n + 1,), int8]) { @f(%x) }
    """
    assert main_type(text).endswith("Tensor[(2*n + 1,), int8]")


def test_two_symbols_are_not_equal():
    error = error_of(
        "def @main(%x: Tensor[(n,), float32], %y: Tensor[(m,), float32]) { add(%x, %y) }"
    )
    assert error.what == "add: the shapes do not broadcast"
    assert (error.expected, error.got) == ("n or 1", "m")
    assert "same symbol" in error.help


def test_a_call_error_names_operator_place_argument_and_axis():
    error = error_of(
        "def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(4, 3), float32]) {\n add(%x, %y) }"
    )
    assert error.where == "<text>:2:2: `add(%x, %y)` in @main"
    assert error.notes == (
        "|  add(%x, %y) }",
        "|  ^^^^^^^^^^^",
        "at argument 1 (rhs), axis 0",
        "argument 0 (lhs): Tensor[(2, 3), float32]",
        "argument 1 (rhs): Tensor[(4, 3), float32]",
    )
    assert (error.expected, error.got) == ("2 or 1", "4")


def test_all_errors_are_collected_and_none_is_reported_twice():
    error = error_of(
        """
        def @main(%x: Tensor[(2,), float32], %y: Tensor[(3,), float32]) {
          %0 = add(%x, %y);
          %1 = exp(%0);
          %2 = (%1, %0);
          %3 = if (%x) { %1 } else { %0 };
          add(%3, %2.0)
        }
        """
    )
    assert [e.what.split(" (")[0] for e in error.errors] == [
        "add: the shapes do not broadcast",
        "the condition is not a boolean scalar",
    ]
    assert error.what == "2 type errors"


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("%x(%x)", "%x is not a function"),
        ("(%x, %x).2", "tuple index 2 is out of range"),
        ("add(%x, 1)", "the operands have different dtypes"),
        ("add((%x, %x), %x)", "add: the argument must be a tensor"),
        ("concatenate(%x, axis=0)", "must be a tuple of tensors"),
        ("fn (%y: int8) { %y }(%x)", "argument 0 of fn (%y) has the wrong type"),
        ("fn (%y: float32) { %y }(%x, %x)", "takes 1 argument"),
        ("if (True) { %x } else { 1f }", "the branches have different types"),
        ("if (True) { %x } else { (%x,) }", "the branches have different types"),
        ("ref_read(%x)", "only a reference can be read"),
        ("ref_write(ref(%x), 1)", "the reference does not hold values of this type"),
        ("@nobody(%x)", "unknown function @nobody"),
        ("(add, %x)", "the operator add is used as a value"),
        ("{ let %y: int8 = %x; %y }", "%y is bound to a value of another type"),
        ("sum(%x, axis=[5])", "sum: axis 5 is out of range"),
        ("sum(%x, axis=[0, 0])", "axis names an axis twice"),
        ("exp(1)", "exp: "),
        ("fn (%f) { %f }", "cannot be inferred"),
        ("fn (%f) { exp(%f) }", "exp: the type cannot be inferred"),
        ("fn (%f) { %f(%f) }", "the type contains itself"),
    ],
)
def test_errors(body, what):
    error = error_of(f"def @main(%x: Tensor[(2,), float32]) {{ {body} }}")
    assert what in error.render()
    assert "@main" in error.render()


def test_a_declared_return_type_must_hold():
    error = error_of("def @main(%x: Tensor[(2,), float32]) -> Tensor[(3,), float32] { %x }")
    assert "declared return type" in error.what
    assert error.expected == "Tensor[(3,), float32]"


def test_wrong_constructor_patterns():
    error = error_of(f"{LIST}def @main(%x: float32) {{ match (%x) {{ Nil() => {{ 1f }} }} }}")
    assert "cannot match a value of this type" in error.render()
    clauses = "Cons(%h) => { 1f }, _ => { 2f }"
    text = f"{LIST}def @main(%l: List[int8]) {{ match (%l) {{ {clauses} }} }}"
    assert "takes 2 fields" in error_of(text).render()


def test_errors_in_one_function_do_not_hide_those_in_another():
    error = error_of(
        """
        def @a(%x: float32) { add(%x, 1) }
        def @main(%x: float32) { (@a(%x), add(%x, 2)) }
        """
    )
    assert len(error.errors) == 2


def test_trust_leaves_typed_parts_alone():
    x = var("x", (2,))
    inner = infer_expr(op.exp(x))
    outer = infer_expr(op.tanh(inner), trust=True)
    assert outer.args[0] is inner
    assert outer.checked_type == TensorType.of((2,))


def test_shared_functions_and_many_calls():
    x = var("x", (2,))
    local = Function((x,), op.exp(x))
    y = var("y", (2,))
    mod = IRModule(
        {
            "one": local,
            "two": local,
            "main": Function((y,), Call(GlobalVar("two"), (Call(GlobalVar("one"), (y,)),))),
        }
    )
    assert str(infer_type(mod)["main"].checked_type.ret_type) == "Tensor[(2,), float32]"


def test_conditions_and_items_of_python_built_programs():
    cond = const(True)
    pair = Tuple((const(1.0), const(2)))
    typed = infer_expr(If(cond, TupleGetItem(pair, 0), const(0.0)))
    assert str(typed.checked_type) == "Tensor[(), float32]"


GENERIC = """
type List[A] { Cons(A, List[A]), Nil }
def @first[A, B](%x: A, %y: B) -> A { %x }
def @empty[A]() -> List[A] { Nil() }
def @main(%x: Tensor[(2,), float32], %n: int32) -> (Tensor[(2,), float32], List[int32]) {
  (@first(%x, @first[int32, bool](%n, True)), Cons(%n, @empty()))
}"""


def test_type_arguments_that_are_not_given_are_found():
    mod = infer_type(parse(GENERIC))
    found = {
        str(getattr(node.op, "name", "")) + ("!" if node.type_args else ""):
            [str(t) for t in node.checked_type_args]
        for node in post_order(mod["main"]) if isinstance(node, Call)
    }  # fmt: skip
    number, vector = "Tensor[(), int32]", "Tensor[(2,), float32]"
    assert found == {
        "first": [vector, number], "first!": [number, "Tensor[(), bool]"],
        "empty": [number], "Cons": [number],
    }  # fmt: skip
    assert infer_type(mod) is mod
    # With types they are written out, and read as given ones; they change no program.
    text = as_text(mod, types=True)
    assert f"@first[{vector}, {number}](" in text
    again = infer_type(parse(text))
    assert all(n.type_args == n.checked_type_args for n in post_order(again["main"])
               if isinstance(n, Call))
    assert_structural_equal(mod, parse(GENERIC))
    assert structural_hash(mod) == structural_hash(parse(GENERIC))


def test_type_arguments_follow_what_a_rewrite_makes_of_the_operands():
    mod = infer_type(parse(GENERIC))
    y = var("y", (2,), "float64")
    main = mod["main"]
    call = main.body.fields[0]
    changed = main.replace(params=(y, main.params[1]),
                           body=call.replace(args=(y, call.args[1])), ret_type=None)
    found = infer_type(mod.with_function("main", changed))["main"].body
    assert str(found.checked_type_args[0]) == "Tensor[(2,), float64]"


def test_the_number_of_type_arguments_is_verified():
    mod = infer_type(parse(GENERIC))
    main = mod["main"]
    call = main.body.fields[0]
    wrong = dataclasses.replace(call, checked_type_args=call.checked_type_args[:1])
    body = dataclasses.replace(main.body, fields=(wrong, main.body.fields[1]))
    with pytest.raises(WellFormedError, match="wrong number of type arguments"):
        verify_module(mod.with_function("main", dataclasses.replace(main, body=body)))


CALLERS = """
def @outer(%x: Tensor[(2,), float32]) { @middle(%x) }
def @middle(%x: Tensor[(2,), float32]) { exp(@inner(%x)) }
def @inner(%x: Tensor[(2,), float32]) { tanh(%x) }
def @apart(%x: Tensor[(2,), float32]) { abs(%x) }
def @even(%n: int32, %x: Tensor[(2,), float32]) {
  if (less(%n, 1)) { %x } else { @odd(subtract(%n, 1), %x) }
}
def @odd(%n: int32, %x: Tensor[(2,), float32]) {
  if (less(%n, 1)) { @inner(%x) } else { @even(subtract(%n, 1), %x) }
}"""


def _visited(monkeypatch, mod):
    """The types of ``mod`` and the functions that inference walked to find them."""
    names = []
    collect = Constraints.collect

    def noted(self, root, function=None):
        names.append(function)
        return collect(self, root, function)

    monkeypatch.setattr(Constraints, "collect", noted)
    after = infer_type(mod)
    monkeypatch.undo()
    return {n: str(fn.checked_type.ret_type) for n, fn in after.functions.items()}, names


def test_inference_after_a_change_walks_what_the_change_reaches(monkeypatch):
    mod = infer_type(parse(CALLERS))
    assert infer_type(mod) is mod
    types, names = _visited(monkeypatch, mod)
    assert names == []
    inner = mod["inner"]
    x = inner.params[0]
    same_type = inner.replace(body=op.tanh(op.exp(x)))
    assert _visited(monkeypatch, mod.with_function("inner", same_type)) == (types, ["inner"])
    wider = inner.replace(body=op.expand_dims(x, axis=0))
    changed, names = _visited(monkeypatch, mod.with_function("inner", wider).without("even", "odd"))
    assert sorted(names) == ["inner", "middle", "outer"]
    assert changed["outer"] == "Tensor[(1, 2), float32]"
    assert changed["apart"] == types["apart"]


def test_what_inference_knows_of_a_module_does_not_hide_errors():
    mod = infer_type(parse(CALLERS))
    with pytest.raises(TypeInferenceError, match="unknown function @inner"):
        infer_type(mod.without("inner"))
    inner = mod["inner"]
    other = inner.replace(body=op.cast(inner.body, dtype="float64"))
    with pytest.raises(TypeInferenceError, match="branches have different types"):
        infer_type(mod.with_function("inner", other))
    lists = infer_type(parse(LIST + "def @main() -> List[int32] { Nil() }"))
    with pytest.raises(TypeInferenceError, match="List"):
        infer_type(dataclasses.replace(lists, type_definitions={}))


def test_calls_like_earlier_ones_need_no_solver(monkeypatch: pytest.MonkeyPatch):
    x = infer_expr(var("x", (2, 7, 5)))
    first = infer_expr(op.sum(x, axis=(1,)), trust=True)
    monkeypatch.setattr(infer, "Constraints", None)
    again = typed_call(op.sum(x, axis=(1,)))
    assert again.checked_type == first.checked_type == var("y", (2, 5)).annotation
    monkeypatch.undo()
    assert typed_call(op.sum(x, axis=(3,))).checked_type is None  # ill-typed
    untyped = op.sum(Var("z"), axis=(0,))
    assert typed_call(untyped) is untyped
