"""Results in the memory of inputs that nobody needs any more."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.compiler.program.in_place import IN_PLACE, SMALLEST
from weft.transform.analysis.reference import evaluate

BIG = "Tensor[(1, 16, 32, 32), float32]"
RESIDUAL = """
def @main(%x: {big}, %w: Tensor[(16, 16, 1, 1), float32]) {{
  let %a = nn.relu(nn.conv2d(%x, %w));
  let %b = nn.relu(nn.conv2d(%a, %w));
  let %c = nn.relu(add(nn.conv2d(%b, %w), %a));
  nn.conv2d({last}, %w)
}}"""


def checked(text: str) -> weft.Executable:
    """The compiled program, whose results are those of the reference."""
    program = weft.parse(text)
    mod = weft.compile(program)
    rng = np.random.default_rng(0)
    inputs = [(rng.standard_normal(spec.shape) / 8).astype(spec.numpy_dtype) for spec in mod.inputs]
    for _ in range(2):  # the arena is used again
        np.testing.assert_allclose(mod(*inputs), evaluate(program, inputs), 1e-4, 1e-4)
    return mod


def reusing(mod: weft.Executable) -> list[str]:
    """The operators of the kernels whose result lies where an input does."""
    return [step.op for step in mod.manifest.steps
            if step.args[-1][0] == "arena" and step.args[-1] in step.args[:-1]]


def test_a_residual_sum_is_written_over_the_residual() -> None:
    mod = checked(RESIDUAL.format(big=BIG, last="%c"))
    assert reusing(mod) == ["nn.conv2d + add + nn.relu"]


def test_what_is_needed_later_stays() -> None:
    mod = checked(RESIDUAL.format(big=BIG, last="multiply(nn.conv2d(%c, %w), %a)"))
    assert reusing(mod) == ["nn.conv2d + multiply"]


def test_little_memory_is_not_worth_a_kernel() -> None:
    small = BIG.replace("32, 32", "8, 8")
    assert SMALLEST > 16 * 8 * 8 * 4
    assert reusing(checked(RESIDUAL.format(big=small, last="%c"))) == []


def test_an_operand_of_another_shape_stays() -> None:
    mod = checked(f"""
def @main(%x: {BIG}, %w: Tensor[(16, 16, 1, 1), float32]) {{
  let %a = nn.conv2d(%x, %w);
  let %b = add(nn.conv2d(%a, %w), nn.global_avg_pool2d(%a));
  nn.conv2d(%b, %w)
}}""")
    assert reusing(mod) == []


@pytest.mark.parametrize("rounds", [0, 1, 3])
def test_inside_a_loop(rounds: int) -> None:
    program = weft.parse(f"""
def @loop(%n: Tensor[(), int32], %h: {BIG}, %w: Tensor[(16, 16, 1, 1), float32]) -> {BIG} {{
  if (greater(%n, 0)) {{
    let %a = nn.relu(nn.conv2d(%h, %w));
    let %b = nn.relu(nn.conv2d(%a, %w));
    @loop(subtract(%n, 1), nn.relu(add(nn.conv2d(%b, %w), %a)), %w)
  }} else {{ %h }}
}}
def @main(%n: Tensor[(), int32], %x: {BIG}, %w: Tensor[(16, 16, 1, 1), float32]) {{
  @loop(%n, %x, %w)
}}""")
    mod = weft.compile(program)
    rng = np.random.default_rng(0)
    arrays = [np.int32(rounds), *((rng.standard_normal(s.shape) / 8).astype(np.float32)
                                  for s in mod.inputs[1:])]
    np.testing.assert_allclose(mod(*arrays), evaluate(program, arrays), 1e-4, 1e-4)


def test_the_text_shows_it() -> None:
    mod = weft.compile(weft.parse(RESIDUAL.format(big=BIG, last="%c")))
    assert f"{IN_PLACE} = 2" in mod.as_text("tir")
