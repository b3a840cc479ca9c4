"""Passes over the functional IR, one per file; importing this package makes their names known.

``passes/`` holds general passes, ``rules/`` the rewrite rules of ``simplify_expr``, ``analysis/``
analyses. ``autodiff/`` has differentiation and ``vmap``, ``fusion/`` operator fusion, ``layout/``
data layouts. ``normal_form/`` has conversions such as ANF and CPS, ``precision/`` mixed precision
and quantization, ``external/`` the delegation of regions to other compilers. The
order of the passes is defined in ``compiler/pipeline.py``.
"""

from weft.ir.passes import FACTS, PASSES
from weft.support.lazy_package import load_names_lazily
from weft.transform.index import PASSES as PASS_MODULES

NAMES = {  # module -> the public names it defines
    "weft.compat.optimizer.auto_control_dependencies": "AutoControlDependencies",
    "weft.compat.optimizer.graph_optimizer": "GraphOptimizer",
    "weft.compat.optimizer.prune_control_edges": "PruneControlEdges",
    "weft.transform.analysis.equivalence": "check_same_values",
    "weft.transform.analysis.reference": "evaluate",
    "weft.transform.autodiff.batching.vectorize": "Vectorize",
    "weft.transform.autodiff.checkpoint.checkpoint_loops": "CheckpointLoops",
    "weft.transform.autodiff.checkpoint.recompute": "Recompute",
    "weft.transform.autodiff.forward.transform": "ForwardMode",
    "weft.transform.autodiff.reverse.expand_for_gradient": "ExpandForGradient",
    "weft.transform.autodiff.reverse.gradient": "Gradient gradient",
    "weft.transform.autodiff.reverse.lazy_gradient_init": "LazyGradientInit",
    "weft.transform.external.codegen": (
        "CompositePattern ExternalCodegen ObjectCode PythonCode Region TensorCode "
        "register_external_codegen"
    ),
    "weft.transform.external.generate_external": "GenerateExternal",
    "weft.transform.external.merge_composite": "MergeComposite",
    "weft.transform.external.partition_graph": "PartitionGraph",
    "weft.transform.fusion.combine_parallel_batch_matmul": "CombineParallelBatchMatmul",
    "weft.transform.fusion.combine_parallel_conv2d": "CombineParallelConv2D",
    "weft.transform.fusion.combine_parallel_dense": "CombineParallelDense",
    "weft.transform.fusion.combine_parallel_op": "CombineParallelOp",
    "weft.transform.fusion.defuse_ops": "DefuseOps",
    "weft.transform.fusion.fuse_attention": "FuseAttention",
    "weft.transform.fusion.fuse_ops": "FuseOps",
    "weft.transform.layout.alter_op_layout": "AlterOpLayout",
    "weft.transform.layout.convert_layout": "ConvertLayout",
    "weft.transform.layout.layout_choice": "AlterLayoutHook LayoutChoice",
    "weft.transform.normal_form.dedup": "Dedup",
    "weft.transform.normal_form.defunctionalization": "Defunctionalization",
    "weft.transform.normal_form.eta_expand": "EtaExpand",
    "weft.transform.normal_form.lambda_lift": "LambdaLift",
    "weft.transform.normal_form.monomorphize": "Monomorphize",
    "weft.transform.normal_form.store_passing": "StorePassing",
    "weft.transform.normal_form.to_a_normal_form": "ToANormalForm",
    "weft.transform.normal_form.to_basic_block_normal_form": "ToBasicBlockNormalForm",
    "weft.transform.normal_form.to_cps": "ToCPS",
    "weft.transform.normal_form.to_graph_normal_form": "ToGraphNormalForm",
    "weft.transform.normal_form.un_cps": "UnCPS",
    "weft.transform.passes.annotate_spans": "AnnotateSpans",
    "weft.transform.passes.bind_data_sizes": "BindDataSizes counts_data",
    "weft.transform.passes.canonicalize_cast": "CanonicalizeCast",
    "weft.transform.passes.canonicalize_ops": "CanonicalizeOps",
    "weft.transform.passes.combine_matmul_sums": "CombineMatmulSums",
    "weft.transform.passes.dead_code_elimination": "DeadCodeElimination",
    "weft.transform.passes.dynamic_to_static": "DynamicToStatic",
    "weft.transform.passes.eliminate_common_subexpr": "EliminateCommonSubexpr",
    "weft.transform.passes.eliminate_identity": "EliminateIdentity",
    "weft.transform.passes.fast_math": "FastMath",
    "weft.transform.passes.fixed_point": "FixedPoint",
    "weft.transform.passes.fold_constant": "FoldConstant",
    "weft.transform.passes.fold_scale_axis":
        "BackwardFoldScaleAxis FoldScaleAxis ForwardFoldScaleAxis",
    "weft.transform.passes.inline": "Inline",
    "weft.transform.passes.legalize": "Legalize LegalizeHook",
    "weft.transform.passes.partial_eval": "PartialEval",
    "weft.transform.passes.print_ir": "PrintIR",
    "weft.transform.passes.remove_unused_functions": "RemoveUnusedFunctions",
    "weft.transform.passes.simplify_expr": "SimplifyExpr",
    "weft.transform.passes.simplify_inference": "SimplifyInference",
    "weft.transform.placement.plan_devices": "PlanDevices",
    "weft.transform.precision.compute_in_float32": "ComputeInFloat32",
    "weft.transform.precision.affine_types": "affine_types",
    "weft.transform.precision.fake_quantization_to_integer": "FakeQuantizationToInteger",
    "weft.transform.precision.pack_block_weights": "PackBlockWeights",
    "weft.transform.precision.qnn_canonicalize": "QnnCanonicalize",
    "weft.transform.precision.to_mixed_precision": "ToMixedPrecision",
}
load_names_lazily(__name__, NAMES)
PASSES.add_index(PASS_MODULES)
FACTS.add_index({"weft.transform.analysis.program_facts":
                 "a_normal_form basic_block_normal_form first_order graph_normal_form kernels "
                 "monomorphic no_references"})
