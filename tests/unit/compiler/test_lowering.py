"""From a fused main to kernel calls."""

import numpy as np
import pytest

import weft.op  # noqa: F401 - programs refer to operators by name
from weft.compiler.program.lowering import lower_program
from weft.compiler.program.program import BufferKind, BufferRef
from weft.ir import infer_type, parse
from weft.support.errors import UnsupportedModelError
from weft.transform import FuseOps


def lowered(text, *, fuse=True):
    mod = infer_type(parse(text))
    return lower_program(FuseOps()(mod) if fuse else mod)


def ref(kind, index):
    return BufferRef(BufferKind(kind), index)


def test_a_chain_is_one_kernel_into_the_output():
    program = lowered("def @main(%x: Tensor[(4,), float32]) { exp(negative(%x)) }")
    assert [s.buffers for s in program.steps] == [(ref("input", 0), ref("output", 0))]
    assert program.kernels[0].text == "negative + exp"
    assert program.inputs[0].name == "x"
    assert not program.output_is_tuple


def test_calls_that_are_not_fused_become_kernels():
    program = lowered("def @main(%x: Tensor[(4,), float32]) { exp(negative(%x)) }", fuse=False)
    assert [k.text for k in program.kernels] == ["negative", "exp"]
    assert program.steps[1].buffers == (ref("arena", 0), ref("output", 0))


def test_identical_kernels_are_built_once():
    text = "def @main(%x: Tensor[(4,), float32]) { exp(exp(exp(%x))) }"
    program = lowered(text, fuse=False)
    assert len(program.steps) == 3
    assert len(program.kernels) == 1


def test_a_reshape_is_another_name_for_the_same_memory():
    program = lowered("""
    def @main(%x: Tensor[(2, 6), float32]) {
      let %a = exp(%x);
      let %b = reshape(%a, newshape=(3, 4));
      nn.softmax(%b)
    }""", fuse=False)
    assert [k.text for k in program.kernels] == ["exp", "nn.softmax"]
    assert program.steps[1].reads == program.steps[0].writes


def test_a_returned_input_is_copied():
    program = lowered("def @main(%x: Tensor[(4,), float32]) { %x }", fuse=False)
    assert [k.text for k in program.kernels] == ["copy"]
    assert program.steps[0].buffers == (ref("input", 0), ref("output", 0))


def test_what_is_returned_twice_is_made_once_and_copied():
    program = lowered("""
    def @main(%x: Tensor[(4,), float32]) {
      let %a = exp(%x);
      (%a, reshape(%a, newshape=(2, 2)))
    }""", fuse=False)
    assert [s.buffers for s in program.steps] == [
        (ref("input", 0), ref("output", 0)), (ref("output", 0), ref("output", 1))]
    assert program.output_is_tuple


def test_tuples_are_passed_flat():
    program = lowered("""
    def @main(%x: (Tensor[(4,), float32], Tensor[(4,), float32])) {
      concatenate((%x.0, %x.1, %x.0), axis=0)
    }""", fuse=False)
    assert [p.name for p in program.inputs] == ["x.0", "x.1"]
    assert program.steps[0].reads == (ref("input", 0), ref("input", 1), ref("input", 0))


def test_several_outputs_of_one_kernel():
    program = lowered("""
    def @main(%x: Tensor[(4,), float32]) { split(%x, indices_or_sections=2, axis=0) }
    """, fuse=False)
    assert program.steps[0].writes == (ref("output", 0), ref("output", 1))


def test_equal_constants_share_memory():
    program = lowered("""
    def @main(%x: Tensor[(2,), float32]) {
      add(multiply(%x, const([1, 2], (2,), float32)), const([1, 2], (2,), float32))
    }""", fuse=False)
    assert len(program.constants) == 1
    np.testing.assert_array_equal(program.constants[0], [1, 2])


def test_sizes_that_are_not_fixed_are_refused_with_help():
    with pytest.raises(UnsupportedModelError, match="inputs="):
        lowered("def @main(%x: Tensor[(?, 4), float32]) { exp(%x) }", fuse=False)


def test_what_is_not_first_order_is_refused():
    with pytest.raises(UnsupportedModelError, match="first-order"):
        lowered("""
        def @main(%x: Tensor[(4,), float32]) { let %r = ref(%x); ref_read(%r) }""", fuse=False)


def test_a_long_chain_is_no_recursion():
    lines = ["def @main(%x: Tensor[(4,), float32]) {", "  let %v0 = exp(%x);"]
    lines += [f"  let %v{i} = exp(%v{i - 1});" for i in range(1, 5000)]
    program = lowered("\n".join([*lines, "  %v4999", "}"]), fuse=False)
    assert len(program.steps) == 5000
    assert len(program.kernels) == 1
