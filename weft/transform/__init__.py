"""Passes over the functional IR, one per file; importing this package registers them by name.

``compiler/pipeline.py`` is the one place that puts them in order.
"""

from weft.transform.alter_op_layout import AlterOpLayout
from weft.transform.annotate_spans import AnnotateSpans
from weft.transform.backward_fold_scale_axis import BackwardFoldScaleAxis
from weft.transform.canonicalize_cast import CanonicalizeCast
from weft.transform.canonicalize_ops import CanonicalizeOps
from weft.transform.combine_parallel_batch_matmul import CombineParallelBatchMatmul
from weft.transform.combine_parallel_conv2d import CombineParallelConv2D
from weft.transform.combine_parallel_dense import CombineParallelDense
from weft.transform.combine_parallel_op import CombineParallelOp
from weft.transform.compute_in_float32 import ComputeInFloat32
from weft.transform.convert_layout import ConvertLayout
from weft.transform.dead_code_elimination import DeadCodeElimination
from weft.transform.dedup import Dedup
from weft.transform.defunctionalization import Defunctionalization
from weft.transform.defuse_ops import DefuseOps
from weft.transform.dynamic_to_static import DynamicToStatic
from weft.transform.eliminate_common_subexpr import EliminateCommonSubexpr
from weft.transform.eliminate_identity import EliminateIdentity
from weft.transform.equivalence import check_same_values
from weft.transform.eta_expand import EtaExpand
from weft.transform.expand_for_gradient import ExpandForGradient
from weft.transform.external import (
    CompositePattern,
    ExternalCodegen,
    ObjectCode,
    PythonCode,
    Region,
    TensorCode,
    register_external_codegen,
)
from weft.transform.fake_quantization_to_integer import FakeQuantizationToInteger
from weft.transform.fast_math import FastMath
from weft.transform.fixed_point import FixedPoint
from weft.transform.fold_constant import FoldConstant
from weft.transform.fold_scale_axis import FoldScaleAxis
from weft.transform.forward_fold_scale_axis import ForwardFoldScaleAxis
from weft.transform.fuse_attention import FuseAttention
from weft.transform.fuse_ops import FuseOps
from weft.transform.generate_external import GenerateExternal
from weft.transform.gradient import Gradient, gradient
from weft.transform.inline import Inline
from weft.transform.lambda_lift import LambdaLift
from weft.transform.layout_choice import AlterLayoutHook, LayoutChoice
from weft.transform.lazy_gradient_init import LazyGradientInit
from weft.transform.legalize import Legalize, LegalizeHook
from weft.transform.merge_composite import MergeComposite
from weft.transform.partial_eval import PartialEval
from weft.transform.partition_graph import PartitionGraph
from weft.transform.print_ir import PrintIR
from weft.transform.qnn_canonicalize import QnnCanonicalize
from weft.transform.recompute import Recompute
from weft.transform.reference import evaluate
from weft.transform.remove_unused_functions import RemoveUnusedFunctions
from weft.transform.simplify_expr import SimplifyExpr
from weft.transform.simplify_inference import SimplifyInference
from weft.transform.to_a_normal_form import ToANormalForm
from weft.transform.to_basic_block_normal_form import ToBasicBlockNormalForm
from weft.transform.to_cps import ToCPS
from weft.transform.to_graph_normal_form import ToGraphNormalForm
from weft.transform.to_mixed_precision import ToMixedPrecision
from weft.transform.un_cps import UnCPS

__all__ = [
    "AlterLayoutHook",
    "AlterOpLayout",
    "AnnotateSpans",
    "BackwardFoldScaleAxis",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "CombineParallelBatchMatmul",
    "CombineParallelConv2D",
    "CombineParallelDense",
    "CombineParallelOp",
    "CompositePattern",
    "ComputeInFloat32",
    "ConvertLayout",
    "DeadCodeElimination",
    "Dedup",
    "Defunctionalization",
    "DefuseOps",
    "DynamicToStatic",
    "EliminateCommonSubexpr",
    "EliminateIdentity",
    "EtaExpand",
    "ExpandForGradient",
    "ExternalCodegen",
    "FakeQuantizationToInteger",
    "FastMath",
    "FixedPoint",
    "FoldConstant",
    "FoldScaleAxis",
    "ForwardFoldScaleAxis",
    "FuseAttention",
    "FuseOps",
    "GenerateExternal",
    "Gradient",
    "Inline",
    "LambdaLift",
    "LayoutChoice",
    "LazyGradientInit",
    "Legalize",
    "LegalizeHook",
    "MergeComposite",
    "ObjectCode",
    "PartialEval",
    "PartitionGraph",
    "PrintIR",
    "PythonCode",
    "QnnCanonicalize",
    "Recompute",
    "Region",
    "RemoveUnusedFunctions",
    "SimplifyExpr",
    "SimplifyInference",
    "TensorCode",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToCPS",
    "ToGraphNormalForm",
    "ToMixedPrecision",
    "UnCPS",
    "check_same_values",
    "evaluate",
    "gradient",
    "register_external_codegen",
]
