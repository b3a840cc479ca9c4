"""Each operator under ``vmap`` gives what a loop over the examples gives."""

from __future__ import annotations

import pytest

from tests.unit.autodiff.batching_cases import batches, check, has_fixed_results
from weft.ir.op import OPS
from weft.support.errors import PassError

# Rules cover the whole catalogue but these; an operator that leaves the list needs no entry here.
EXAMPLE_BY_EXAMPLE = """
    dyn.full dyn.ones dyn.reshape fixed_point_multiply_per_axis image.crop_and_resize
    invert_permutation meshgrid nn.adaptive_max_pool1d_indices nn.adaptive_max_pool2d_indices
    nn.adaptive_max_pool3d_indices nn.batch_norm nn.batch_to_space_nd nn.bitpack
    nn.bitserial_conv2d nn.bitserial_dense nn.cached_attention nn.max_pool1d_indices
    nn.max_pool1d_indices_grad nn.max_pool2d_indices nn.max_pool2d_indices_grad
    nn.max_pool3d_indices nn.max_pool3d_indices_grad nn.paged_cache_update
    nn.space_to_batch_nd nn.sparse_add nn.sparse_conv2d nn.sparse_dense nn.sparse_transpose
    nn.winograd_conv2d nn.winograd_weight random.bernoulli random.multinomial random.normal
    random.randint random.threefry_generate random.threefry_split random.uniform
    reverse_sequence sequence_mask sparse_reshape sparse_to_dense special.incomplete_gamma
    special.orthogonal_polynomial stft strided_set unravel_index vision.get_valid_counts
    vision.multibox_prior vision.multibox_transform_loc vision.non_max_suppression
    vision.proposal vision.regular_non_max_suppression vision.roi_align vision.roi_pool
    vision.yolo_reorg
"""
OPERATORS = [name for name in OPS if OPS.get(name).cases and OPS.get(name).inputs]


@pytest.mark.parametrize("name", OPERATORS)
def test_batch_equals_loop(name):
    op = OPS.get(name)
    by_rule = False
    for number, one in enumerate(op.cases):
        for batch in batches(op, one, number, most=2):
            if has_fixed_results(batch.call):
                by_rule = check(batch) or by_rule
            else:
                with pytest.raises(PassError, match="result of another size"):
                    check(batch)
                by_rule = True
    assert by_rule or name in EXAMPLE_BY_EXAMPLE.split()
