"""Passes over the functional IR, one per file; importing this package registers them by name.

``compiler/pipeline.py`` is the one place that puts them in order.
"""

from weft.transform.alter_op_layout import AlterOpLayout
from weft.transform.canonicalize_ops import CanonicalizeOps
from weft.transform.dead_code_elimination import DeadCodeElimination
from weft.transform.defuse_ops import DefuseOps
from weft.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from weft.transform.equivalence import check_same_values
from weft.transform.fold_constant import FoldConstant
from weft.transform.fold_scale_axis import FoldScaleAxis
from weft.transform.fuse_ops import FuseOps
from weft.transform.inline import Inline
from weft.transform.lambda_lift import LambdaLift
from weft.transform.layout_choice import AlterLayoutHook, LayoutChoice
from weft.transform.reference import evaluate
from weft.transform.remove_unused_functions import RemoveUnusedFunctions
from weft.transform.simplify_expr import SimplifyExpr
from weft.transform.simplify_inference import SimplifyInference
from weft.transform.to_a_normal_form import ToANormalForm
from weft.transform.to_basic_block_normal_form import ToBasicBlockNormalForm
from weft.transform.to_graph_normal_form import ToGraphNormalForm

__all__ = [
    "AlterLayoutHook",
    "AlterOpLayout",
    "CanonicalizeOps",
    "DeadCodeElimination",
    "DefuseOps",
    "EliminateCommonSubexpr",
    "FoldConstant",
    "FoldScaleAxis",
    "FuseOps",
    "Inline",
    "LambdaLift",
    "LayoutChoice",
    "RemoveUnusedFunctions",
    "SimplifyExpr",
    "SimplifyInference",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToGraphNormalForm",
    "check_same_values",
    "evaluate",
]
