"""The virtual machine by itself: bytecode written by hand, its file form, and corrupt programs."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from weft.runtime.vm import bytecode as bc
from weft.runtime.vm.kernels import KernelTable, Scratch
from weft.runtime.vm.machine import Image, Machine
from weft.runtime.vm.plain import check_program, from_plain, to_plain
from weft.runtime.vm.program import TensorForm, VmFunction, VmKernel, VmProgram
from weft.runtime.vm.text import as_text
from weft.runtime.vm.value import Closure, Data, value_text
from weft.support.errors import ArtifactError, InvalidInputError

CONSTANTS = [np.array(True), np.array(False), np.float32([[1, 2], [3, 4]])]


class NoLibrary:
    """A library without symbols, for programs without kernels."""

    def address(self, symbol: str) -> int:
        raise ArtifactError(symbol)


def run(code, args=(), num_registers=8, more=()):
    main = VmFunction("main", 0, len(args), num_registers, tuple(code))
    program = VmProgram((main, *more), (), 0)
    check_program(program, len(CONSTANTS))
    table = KernelTable(program, NoLibrary(), None)
    return Machine(Image(program, table, CONSTANTS), Scratch()).run(0, args)


def test_tuples_and_their_fields():
    assert run([bc.MakeTuple(2, (0, 1)), bc.GetItem(3, 2, 1), bc.Return(3)], ("a", "b")) == "b"


def test_data_and_tags():
    code = [bc.MakeData(1, 2, "Third", (0,)), bc.JumpUnlessTag(1, 1, 3), bc.Fail("wrong way"),
            bc.JumpUnlessTag(1, 2, 6), bc.GetField(2, 1, 0), bc.Return(2), bc.Fail("wrong way")]
    assert run(code, ("x",)) == "x"


def test_fail_says_where():
    with pytest.raises(InvalidInputError, match="no clause") as error:
        run([bc.Fail("here:3:4")])
    assert error.value.where == "here:3:4"


@pytest.mark.parametrize("flag", [0, 1])
def test_branches(flag):
    code = [bc.LoadConstant(0, flag), bc.JumpUnless(0, 4), bc.LoadConstant(1, 0), bc.Jump(5),
            bc.LoadConstant(1, 1), bc.Return(1)]
    assert bool(run(code)) is (flag == 0)


def test_references():
    code = [bc.MakeRef(2, 0), bc.ReadRef(3, 2), bc.WriteRef(2, 1), bc.ReadRef(4, 2),
            bc.MakeTuple(5, (3, 4)), bc.Return(5)]
    assert run(code, ("old", "new")) == ("old", "new")


def test_free_gives_values_up():
    assert run([bc.Move(1, 0), bc.Free((0,)), bc.MakeTuple(2, (0, 1)), bc.Return(2)],
               ("x",)) == (None, "x")


def test_reshape_copies_nothing():
    result = run([bc.LoadConstant(0, 2), bc.Reshape(1, 0, (4,)), bc.Return(1)])
    assert result.shape == (4,)
    assert np.shares_memory(result, CONSTANTS[2])


def test_closures_know_themselves_and_what_they_captured():
    inner = VmFunction("inner", 1, 1, 4, (bc.LoadSelf(2), bc.MakeTuple(3, (0, 1, 2)), bc.Return(3)))
    code = [bc.MakeClosure(2, 1, (0,)), bc.CallClosure(3, 2, (1,)), bc.Return(3)]
    captured, given, itself = run(code, ("c", "a"), more=(inner,))
    assert (captured, given) == ("c", "a")
    assert isinstance(itself, Closure)


def test_calls_and_tail_calls():
    pair = VmFunction("pair", 0, 2, 3, (bc.MakeTuple(2, (0, 1)), bc.Return(2)))
    swap = VmFunction("swap", 0, 2, 2, (bc.TailCall(1, (1, 0)),))
    code = [bc.Call(2, 2, (0, 1)), bc.MakeClosure(3, 1, ()), bc.TailCallClosure(3, (2, 0))]
    assert run(code, ("a", "b"), more=(pair, swap)) == (("b", "a"), "a")


KERNEL = VmKernel("weft_add", 2, (TensorForm("float32", (2, 3)),), 64, "add.cpu", "add", 6, 72)
EVERY = (
    bc.LoadConstant(0, 0), bc.Move(1, 0), bc.Free((0, 1)), bc.InvokeKernel((2,), 0, (0, 1)),
    bc.Reshape(3, 2, (6,)), bc.MakeTuple(3, (0,)), bc.GetItem(4, 3, 0),
    bc.MakeData(4, 1, "Nil", ()),
    bc.GetField(5, 4, 0), bc.MakeRef(5, 0), bc.ReadRef(6, 5), bc.WriteRef(5, 0),
    bc.MakeClosure(7, 0, (1,)), bc.LoadSelf(7), bc.Call(0, 0, ()), bc.CallClosure(0, 1, (2,)),
    bc.JumpUnless(0, 3), bc.JumpUnlessTag(0, 1, 2), bc.Jump(1), bc.TailCall(0, (1, 2)),
    bc.TailCallClosure(1, ()), bc.Fail("here"), bc.Return(0),
)  # fmt: skip
PROGRAM = VmProgram((VmFunction("f", 0, 1, 8, EVERY),), (KERNEL,), 0, returns_value=True)


def test_programs_survive_their_file_form():
    assert {type(i) for i in EVERY} == set(bc.INSTRUCTIONS.values())
    assert from_plain(json.loads(json.dumps(to_plain(PROGRAM))), 1) == PROGRAM


def test_every_instruction_has_a_text():
    text = as_text(PROGRAM)
    for opcode in bc.INSTRUCTIONS:
        assert opcode in text
    assert "kernel[0]: add -> Tensor[(2, 3), float32] (add.cpu) weft_add" in text


@pytest.mark.parametrize("bad", [
    bc.Move(8, 0), bc.Move(0, 8), bc.Jump(99), bc.InvokeKernel((0,), 1, ()), bc.Call(0, 1, ()),
    bc.LoadConstant(0, 1), bc.JumpUnless(0, 24),
])
def test_code_that_leaves_its_tables_is_refused(bad):
    function = dataclasses.replace(PROGRAM.functions[0], code=(bad, *EVERY))
    with pytest.raises(ArtifactError, match="corrupt program"):
        check_program(dataclasses.replace(PROGRAM, functions=(function,)), 1)


@pytest.mark.parametrize("change", [
    {"code": EVERY[:3]}, {"code": ()}, {"num_params": 9},
])
def test_functions_that_cannot_run_are_refused(change):
    function = dataclasses.replace(PROGRAM.functions[0], **change)
    with pytest.raises(ArtifactError, match="corrupt program"):
        check_program(dataclasses.replace(PROGRAM, functions=(function,)), 1)


def test_damaged_files_are_refused():
    plain = to_plain(PROGRAM)
    for damage in ({"entry": 5}, {"functions": [{**plain["functions"][0], "code": [["return"]]}]}):
        with pytest.raises(ArtifactError):
            from_plain({**plain, **damage}, 1)
    for code in ([["dance", 1]], [["return", -1]], [["return", "x"]], [["return", [0]]],
                 [["free", 1]]):
        with pytest.raises((ArtifactError, KeyError, TypeError)):
            from_plain({**plain, "functions": [{**plain["functions"][0], "code": code}]}, 1)


def test_values_print_without_recursion():
    value = Data(1, "Nil", ())
    for _ in range(50_000):
        value = Data(0, "Cons", ((1, 2), value))
    assert value_text(value, limit=12).startswith("Cons((1, 2), Cons(")
    assert str(Data(0, "Some", (3,))) == "Some(3)"
