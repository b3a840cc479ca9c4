"""Passes over the functional IR, one per file; importing this package makes their names known.

``passes/`` holds general passes, ``optimizer/`` the graph optimiser, which runs many of them in
rounds, ``rules/`` the rewrite rules of ``simplify_expr``, ``analysis/`` analyses, ``autodiff/``
differentiation and ``vmap``, ``fusion/`` operator fusion, ``layout/`` data layouts,
``normal_form/`` conversions such as ANF and CPS, ``precision/`` mixed precision and quantization,
``external/`` the delegation of regions to other compilers. The order of the passes is defined in
``compiler/pipeline.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.ir.facts import FACTS
from weft.ir.passes import PASSES
from weft.support.lazy_package import load_names_lazily
from weft.transform.index import NAMES
from weft.transform.index import PASSES as PASS_MODULES

if TYPE_CHECKING:
    from weft.compat.optimizer.auto_control_dependencies import AutoControlDependencies
    from weft.compat.optimizer.graph_optimizer import GraphOptimizer
    from weft.compat.optimizer.prune_control_edges import PruneControlEdges
    from weft.transform.analysis.equivalence import check_same_values
    from weft.transform.analysis.reference import evaluate
    from weft.transform.autodiff.batching.vectorize import Vectorize
    from weft.transform.autodiff.checkpoint.checkpoint_loops import CheckpointLoops
    from weft.transform.autodiff.checkpoint.recompute import Recompute
    from weft.transform.autodiff.forward.transform import ForwardMode
    from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
    from weft.transform.autodiff.reverse.gradient import Gradient, gradient
    from weft.transform.autodiff.reverse.lazy_gradient_init import LazyGradientInit
    from weft.transform.external.codegen import (
        CompositePattern,
        ExternalCodegen,
        ObjectCode,
        PythonCode,
        Region,
        TensorCode,
        register_external_codegen,
    )
    from weft.transform.external.generate_external import GenerateExternal
    from weft.transform.external.merge_composite import MergeComposite
    from weft.transform.external.partition_graph import PartitionGraph
    from weft.transform.fusion.combine_parallel_batch_matmul import CombineParallelBatchMatmul
    from weft.transform.fusion.combine_parallel_conv2d import CombineParallelConv2D
    from weft.transform.fusion.combine_parallel_dense import CombineParallelDense
    from weft.transform.fusion.combine_parallel_op import CombineParallelOp
    from weft.transform.fusion.defuse_ops import DefuseOps
    from weft.transform.fusion.fuse_attention import FuseAttention
    from weft.transform.fusion.fuse_ops import FuseOps
    from weft.transform.layout.alter_op_layout import AlterOpLayout
    from weft.transform.layout.convert_layout import ConvertLayout
    from weft.transform.layout.layout_choice import AlterLayoutHook, LayoutChoice
    from weft.transform.normal_form.dedup import Dedup
    from weft.transform.normal_form.defunctionalization import Defunctionalization
    from weft.transform.normal_form.eta_expand import EtaExpand
    from weft.transform.normal_form.lambda_lift import LambdaLift
    from weft.transform.normal_form.monomorphize import Monomorphize
    from weft.transform.normal_form.store_passing import StorePassing
    from weft.transform.normal_form.to_a_normal_form import ToANormalForm
    from weft.transform.normal_form.to_basic_block_normal_form import ToBasicBlockNormalForm
    from weft.transform.normal_form.to_cps import ToCPS
    from weft.transform.normal_form.to_graph_normal_form import ToGraphNormalForm
    from weft.transform.normal_form.un_cps import UnCPS
    from weft.transform.passes.annotate_spans import AnnotateSpans
    from weft.transform.passes.backward_fold_scale_axis import BackwardFoldScaleAxis
    from weft.transform.passes.bind_data_sizes import BindDataSizes, counts_data
    from weft.transform.passes.canonicalize_cast import CanonicalizeCast
    from weft.transform.passes.canonicalize_ops import CanonicalizeOps
    from weft.transform.passes.combine_matmul_sums import CombineMatmulSums
    from weft.transform.passes.dead_code_elimination import DeadCodeElimination
    from weft.transform.passes.dynamic_to_static import DynamicToStatic
    from weft.transform.passes.eliminate_common_subexpr import EliminateCommonSubexpr
    from weft.transform.passes.eliminate_identity import EliminateIdentity
    from weft.transform.passes.fast_math import FastMath
    from weft.transform.passes.fixed_point import FixedPoint
    from weft.transform.passes.fold_constant import FoldConstant
    from weft.transform.passes.fold_scale_axis import FoldScaleAxis
    from weft.transform.passes.forward_fold_scale_axis import ForwardFoldScaleAxis
    from weft.transform.passes.inline import Inline
    from weft.transform.passes.legalize import Legalize, LegalizeHook
    from weft.transform.passes.partial_eval import PartialEval
    from weft.transform.passes.print_ir import PrintIR
    from weft.transform.passes.remove_unused_functions import RemoveUnusedFunctions
    from weft.transform.passes.simplify_expr import SimplifyExpr
    from weft.transform.passes.simplify_inference import SimplifyInference
    from weft.transform.placement.plan_devices import PlanDevices
    from weft.transform.precision.compute_in_float32 import ComputeInFloat32
    from weft.transform.precision.fake_quantization_to_integer import FakeQuantizationToInteger
    from weft.transform.precision.qnn_canonicalize import QnnCanonicalize
    from weft.transform.precision.to_mixed_precision import ToMixedPrecision
else:
    load_names_lazily(__name__, NAMES[__name__])

PASSES.add_index(PASS_MODULES)
FACTS.add_index({"weft.transform.analysis.program_facts":
                 "a_normal_form basic_block_normal_form first_order graph_normal_form kernels "
                 "monomorphic no_references"})

__all__ = [
    "AlterLayoutHook",
    "AlterOpLayout",
    "AnnotateSpans",
    "AutoControlDependencies",
    "BackwardFoldScaleAxis",
    "BindDataSizes",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "CheckpointLoops",
    "CombineMatmulSums",
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
    "ForwardMode",
    "FuseAttention",
    "FuseOps",
    "GenerateExternal",
    "Gradient",
    "GraphOptimizer",
    "Inline",
    "LambdaLift",
    "LayoutChoice",
    "LazyGradientInit",
    "Legalize",
    "LegalizeHook",
    "MergeComposite",
    "Monomorphize",
    "ObjectCode",
    "PartialEval",
    "PartitionGraph",
    "PlanDevices",
    "PrintIR",
    "PruneControlEdges",
    "PythonCode",
    "QnnCanonicalize",
    "Recompute",
    "Region",
    "RemoveUnusedFunctions",
    "SimplifyExpr",
    "SimplifyInference",
    "StorePassing",
    "TensorCode",
    "ToANormalForm",
    "ToBasicBlockNormalForm",
    "ToCPS",
    "ToGraphNormalForm",
    "ToMixedPrecision",
    "UnCPS",
    "Vectorize",
    "check_same_values",
    "counts_data",
    "evaluate",
    "gradient",
    "register_external_codegen",
]
