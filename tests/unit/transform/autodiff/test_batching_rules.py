"""Each operator under ``vmap`` gives what a loop over the examples gives."""

from __future__ import annotations

import pytest

from tests.unit.transform.autodiff.batching_cases import batches, check, has_fixed_results
from weft.ir.op import OPS
from weft.support.errors import PassError

# Operators whose examples must run together; ``batching_cases`` prints the others.
BY_RULE = """
    add where exp sum max argmax nn.softmax nn.layer_norm nn.rms_norm nn.batch_matmul nn.matmul
    nn.dense nn.conv2d nn.conv2d_transpose nn.max_pool2d nn.attention nn.masked_attention take
    gather gather_nd scatter_elements scatter_nd concatenate split reshape transpose strided_slice
    sort topk cumsum one_hot nn.conv2d_backward_weight einsum adv_index nn.rotary_embedding
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
    assert by_rule or name not in BY_RULE.split()
