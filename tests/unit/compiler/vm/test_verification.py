"""``WEFT_VERIFY`` on programs that the virtual machine runs, and on broken bytecode."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import weft
from weft.compiler.pipeline import compare_modules
from weft.compiler.vm.verify import verify_bytecode
from weft.runtime.vm.bytecode import Free, Instruction, Role
from weft.runtime.vm.program import VmFunction
from weft.support.errors import InternalError

pytestmark = pytest.mark.usefixtures("own_cache")

LIST = """
import "prelude"
def @main(%x: int32, %y: Tensor[(2,), float32]) {{ {body} }}"""


def test_data_is_compared_by_constructor_and_fields():
    one = weft.parse(LIST.format(body="Cons(%x, Cons(1, Nil()))"))
    same = weft.parse(LIST.format(body="Cons(%x, Cons(subtract(2, 1), Nil()))"))
    other = weft.parse(LIST.format(body="Cons(%x, Cons(2, Nil()))"))
    compare_modules(one, same)
    with pytest.raises(InternalError, match="changed what"):
        compare_modules(one, other)


def test_every_pass_is_checked_on_the_way():
    mod = weft.parse(LIST.format(body="(Cons(%x, Nil()), exp(multiply(%y, 1f)))"))
    value, tensor = weft.compile(mod, verify=3)(np.int32(3), np.float32([0, 0]))
    assert str(value) == "Cons(array(3, dtype=int32), Nil())"
    np.testing.assert_array_equal(tensor, [1, 1])


def test_dynamic_shapes_compile_under_verification():
    mod = weft.parse("def @main(%x: Tensor[(n,), float32]) { exp(add(%x, 0f)) }")
    assert weft.compile(mod, verify=3)(np.zeros(3, np.float32)).tolist() == [1, 1, 1]


RECURSIVE = """
def @main(%n: int32, %x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
  let %scale = fn (%y: Tensor[(2,), float32]) -> Tensor[(2,), float32] { multiply(%y, %x) };
  if (less(%n, 1)) { tanh(%x) } else { add(%scale(@main(subtract(%n, 1), exp(%x))), %x) }
}"""


def functions() -> tuple[VmFunction, ...]:
    mod = weft.compile(weft.parse(RECURSIVE), opt_level=0)
    assert mod.manifest.vm is not None
    return mod.manifest.vm.functions


def _without(function: VmFunction, at: int) -> VmFunction:
    """The function with a ``Free`` of no registers instead of one instruction."""
    code = [*function.code[:at], Free(()), *function.code[at + 1:]]
    return dataclasses.replace(function, code=tuple(code))


def test_bytecode_without_one_of_its_instructions():
    """Each value that is read is missed, whichever instruction made it."""
    missed = 0
    for function in functions():
        verify_bytecode([function])
        for at, instruction in enumerate(function.code):
            if isinstance(instruction, Free) or not any(instruction.numbers(Role.WRITES)):
                continue
            with pytest.raises(InternalError, match="before it is written") as caught:
                verify_bytecode([_without(function, at)])
            assert f"of {function.name}" in str(caught.value)
            missed += 1
    assert missed > 8


def test_bytecode_that_reads_what_is_freed():
    def frees_first(function: VmFunction, at: int) -> VmFunction:
        read: list[int] = list(function.code[at].numbers(Role.READS))
        instruction: Instruction = Free(tuple(read))
        # It replaces an instruction, so that the targets of jumps stay.
        code = [*function.code[:at - 1], instruction, *function.code[at:]]
        return dataclasses.replace(function, code=tuple(code))

    for function in functions():
        for at in range(1, len(function.code)):
            if any(function.code[at].numbers(Role.READS)):
                with pytest.raises(InternalError, match="before it is written"):
                    verify_bytecode([frees_first(function, at)])


def test_bytecode_that_does_not_end():
    for function in functions():
        with pytest.raises(InternalError, match="past the end"):
            verify_bytecode([dataclasses.replace(function, code=function.code[:1])])
