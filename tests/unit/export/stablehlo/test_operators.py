"""Every case of every operator, written as StableHLO and read back by weft's importer."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.cli.commands import run as run_command
from tests.unit.op.harness import (
    CaseId,
    all_cases,
    assert_close,
    case_of,
    flatten,
    make_call,
    make_inputs,
    parameters_of,
    reference_outputs,
)
from weft.export.stablehlo.program import stablehlo_text
from weft.frontend.stablehlo import from_stablehlo
from weft.ir import Function, IRModule
from weft.ir.op import OPS
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

# Operators without a form, for some of their cases at least: loops, data-dependent shapes, sorting.
REFUSED = {
    "argsort", "argwhere", "collapse_sum_like", "collapse_sum_to", "dyn.arange",
    "dyn.broadcast_to", "dyn.expand_dims", "dyn.full", "dyn.image.resize2d", "dyn.nn.pad",
    "dyn.nn.upsampling", "dyn.nn.upsampling3d", "dyn.one_hot", "dyn.ones", "dyn.reshape",
    "dyn.sparse_to_dense", "dyn.squeeze", "dyn.strided_slice", "dyn.tile", "dyn.topk",
    "dyn.zeros", "floor_divide", "floor_mod", "gcd", "invert_permutation", "linalg.cholesky",
    "linalg.eigh", "linalg.lu", "linalg.matrix_exp", "linalg.pivot_order", "linalg.svd",
    "linalg.triangular_solve", "nn.bitserial_conv2d", "nn.bitserial_dense",
    "nn.block_dequantize", "nn.block_quantized_dense", "nn.cache_update",
    "nn.cached_attention", "nn.max_pool1d_indices", "nn.max_pool2d_indices",
    "nn.max_pool3d_indices", "nn.paged_cache_update", "nn.sparse_conv2d", "nn.sparse_dense",
    "nn.sparse_transpose", "random.multinomial", "scatter_elements", "sort",
    "sparse_fill_empty_rows", "sparse_reshape", "special.incomplete_gamma",
    "special.orthogonal_polynomial", "strided_set", "take", "topk", "trunc", "trunc_divide",
    "unique", "unravel_index", "vision.all_class_non_max_suppression",
    "vision.get_valid_counts", "vision.non_max_suppression", "vision.proposal",
    "vision.regular_non_max_suppression", "vision.roi_align", "vision.roi_align_grad",
    "vision.roi_align_tangent", "vision.roi_pool", "vision.roi_pool_grad",
    "vision.roi_pool_tangent",
}


def label_of(id_: CaseId) -> str:
    return f"{id_[0]}-{id_[1]}"


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("id_", all_cases(), ids=label_of)
def test_a_case_is_the_same_in_stablehlo(id_: CaseId) -> None:
    name, one = id_[0], case_of(id_)
    arrays = make_inputs(OPS.get(name), one)
    call = make_call(OPS.get(name), one, arrays)
    try:
        text = stablehlo_text(IRModule.from_expr(Function(parameters_of(call), call)))
    except UnsupportedModelError:
        assert name in REFUSED
        return
    found = evaluate(from_stablehlo(text), flatten(arrays))
    found = found if isinstance(found, tuple) else (found,)
    for got, want in zip(found, reference_outputs(call, arrays), strict=True):
        assert np.shape(got) == np.shape(want)
        assert_close(np.asarray(got), np.asarray(want), one)


MLP = """
def @main(%x: Tensor[(n, 4), float32], %w: Tensor[(3, 4), float32]) {
  mean(nn.softmax(nn.dense(%x, %w)))
}
"""


def test_a_training_graph_is_written_and_compiled(tmp_path):
    step = weft.grad(weft.parse(MLP.replace("n, 4", "2, 4")), with_respect_to="w")
    path = tmp_path / "step.mlir"
    weft.export_stablehlo(step, path)
    first = path.read_bytes()
    weft.export_stablehlo(step, path)
    assert path.read_bytes() == first
    rng = np.random.default_rng(0)
    x, w = rng.random((2, 4), np.float32), rng.random((3, 4), np.float32)
    expected = evaluate(step, [x, w])
    np.testing.assert_allclose(weft.compile(path)(x, w), expected, rtol=1e-4, atol=1e-7)


def test_symbolic_sizes_are_to_be_fixed(tmp_path, capsys):
    path, target = tmp_path / "mlp.ir", tmp_path / "mlp.mlir"
    path.write_text(MLP, encoding="utf-8")
    with pytest.raises(UnsupportedModelError, match="fixed sizes"):
        weft.export_stablehlo(path, target)
    code, _, _ = run_command(["export", str(path), "-o", str(target), "--input-shape", "x:2x4"],
                             capsys)
    assert code == 0
    assert "tensor<2x4xf32>" in target.read_text(encoding="utf-8")


def test_all_that_has_no_form_is_listed_at_once():
    mod = weft.parse("""
        def @main(%x: Tensor[(1, 3, 3), float32]) {
          (linalg.cholesky(%x).0, linalg.eigh(%x).0)
        }""")
    with pytest.raises(UnsupportedModelError) as found:
        stablehlo_text(mod)
    assert [note.partition(":")[0] for note in found.value.notes] == [
        "linalg.cholesky", "linalg.eigh"]
