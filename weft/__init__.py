"""weft: a deep learning compiler in Python.

    import weft

    mod = weft.compile("resnet50.onnx")     # or bytes, onnx.ModelProto, torch module, IRModule, ..
    y = mod(x)                              # NumPy arrays, or arrays that support DLPack
    mod.export("resnet50.weft")             # ahead-of-time artifact
    y = weft.load("resnet50.weft")(x)       # runs without a compiler

``import weft`` imports neither the compiler nor a front end: the module that defines a public name
is imported when the name is first used. A program that only loads artifacts needs NumPy alone.
"""

from __future__ import annotations

import importlib
from typing import Any

from weft.support import errors
from weft.support.config import config  # noqa: F401 - public
from weft.support.errors import WeftError  # noqa: F401 - public
from weft.support.interpreter import interrupts_held

__version__ = "0.1.0"

NAMES = {  # module -> the public names it defines; ``__init__.pyi`` is generated from this table
    "weft": (
        "amp autograd checkpoints codegen compiler cuda data debug distributed export fft "
        "frontend generation graph ir linalg masked models nn onnx_backend op optim quantization "
        "runtime serialization signal special strategy target te tir topi torch_backend transform "
        "tune"
    ),
    "weft.support": "errors",
    "weft.support.config": "config",
    "weft.support.errors": "WeftError",
    "weft.compiler.api": "compile parse",
    "weft.tune.tuning": "autotune",
    "weft.compiler.transformations.checkpointing": "checkpoint checkpoint_sequential",
    "weft.compiler.memory_budget": "remat",
    "weft.compiler.opcheck": "opcheck",
    "weft.compiler.interchange": "export_entries export_onnx export_stablehlo",
    "weft.compiler.transformations.custom": "custom_jvp custom_vjp",
    "weft.compiler.transformations.gradients": "stop_gradient",
    "weft.frontend.onnx.converters": "onnx_converter",
    "weft.frontend.source": "ModelLike",
    "weft.frontend.stablehlo.converters": "stablehlo_converter",
    "weft.frontend.tflite.converters": "tflite_converter",
    "weft.frontend.torch": "torch_converter",
    "weft.generation.generate": "generate",
    "weft.ir": (
        "Attrs Function IRModule OpPattern TensorType attr op_case register_pass rule"
    ),
    "weft.ir.python.from_python": "function",
    "weft.op": "define_op",
    "weft.quantization.api": "quantize",
    "weft.runtime.devices.cuda.array": "DeviceArray",
    "weft.runtime.devices.sim.description": "SimDevice",
    "weft.runtime.executable": "Executable",
    "weft.runtime.run_control": "CancellationToken RunControl",
    "weft.serialization": "load save",
    "weft.signal.windows": (
        "bartlett_window blackman_window hamming_window hann_window kaiser_window"
    ),
    "weft.support.fallback": "FallbackWarning",
    "weft.support.insertion": "pass_at",
    "weft.target": "CpuTarget Target",
    "weft.tir.transform.registered": "register_tir_pass",
    "weft.transform": "register_external_codegen",
    "weft.transform.placement.virtual_devices": "virtual_devices",
    # Tensors and their functions: docs/training.md.
    "weft.amp.autocast": "autocast is_autocast_enabled",
    "weft.array_api.constants": "e inf nan newaxis pi",
    "weft.array_api.data_types": "finfo iinfo",
    "weft.eager.anomaly": "detect_anomaly",
    "weft.eager.cell": "detached=detach",
    "weft.eager.device": "device get_default_device set_default_device",
    "weft.eager.dtype_names": "bool float int",
    "weft.eager.dtypes": (
        "bfloat16 bool_ cdouble cfloat complex128 complex64 double dtype float16 float32 float64 "
        "get_default_dtype half int16 int32 int64 int8 long set_default_dtype short uint16 uint32 "
        "uint64 uint8"
    ),
    "weft.eager.functions.assembly": (
        "atleast_1d atleast_2d atleast_3d block_diag cartesian_prod column_stack combinations "
        "dstack fliplr flipud hstack rot90 row_stack tril_indices triu_indices vander vstack"
    ),
    "weft.eager.functions.comparison": (
        "allclose equal get_device is_conj is_floating_point is_inference is_neg is_nonzero "
        "is_same_size is_signed is_tensor isclose isin numel"
    ),
    "weft.eager.functions.complex": (
        "adjoint angle complex conj conj_physical imag is_complex isreal polar real "
        "resolve_conj resolve_neg sgn view_as_complex view_as_real"
    ),
    "weft.eager.functions.creation": (
        "arange as_tensor asarray empty empty_like empty_permuted empty_strided eye from_dlpack "
        "from_numpy frombuffer full full_like linspace logspace meshgrid ones ones_like "
        "scalar_tensor tensor zeros zeros_like"
    ),
    "weft.eager.functions.elementwise": (
        "abs absolute acos acosh add addcdiv addcmul arccos arccosh arcsin arcsinh arctan arctan2 "
        "arctanh asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min clip clone cos cosh "
        "div divide eq erf exp exp2 expm1 fill fix float_power floor floor_divide fmod ge greater "
        "greater_equal gt hypot isfinite isinf isnan le lerp less less_equal log log10 log1p log2 "
        "logaddexp lt maximum minimum mul multiply nan_to_num ne neg negative not_equal positive "
        "pow reciprocal relu remainder round rsqrt rsub sigmoid sign sin sinh sqrt square sub "
        "subtract tan tanh true_divide trunc where"
    ),
    "weft.eager.functions.gathering": (
        "gather index_add index_fill index_select scatter scatter_add take_along_dim"
    ),
    "weft.eager.functions.indexing": (
        "argwhere as_strided diag diagonal masked_select narrow nonzero nonzero_static select take"
    ),
    "weft.eager.functions.linalg.low_rank": "pca_lowrank svd_lowrank",
    "weft.eager.functions.linalg.older": (
        "cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu lu_solve lu_unpack "
        "matrix_exp orgqr ormqr pinverse qr slogdet svd triangular_solve"
    ),
    "weft.eager.functions.linalg.products": "matrix_power",
    "weft.eager.functions.linear": (
        "addbmm addmm addmv addr baddbmm bmm cdist chain_matmul cross dot einsum ger inner kron "
        "matmul mm mv outer tensordot vdot"
    ),
    "weft.eager.functions.logic": (
        "bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor "
        "logical_and logical_not logical_or logical_xor"
    ),
    "weft.eager.functions.ordering": (
        "argsort bucketize kthvalue median mode msort nanmedian nanquantile quantile searchsorted "
        "sort topk"
    ),
    "weft.eager.functions.random": (
        "Generator bernoulli default_generator get_rng_state initial_seed manual_seed multinomial "
        "normal poisson rand rand_like randint randint_like randn randn_like randperm "
        "set_rng_state"
    ),
    "weft.eager.functions.reduction": (
        "all amax amin aminmax any argmax argmin count_nonzero cummax cummin cumprod cumsum dist "
        "log_softmax logcumsumexp logsumexp max mean min nanmean nansum norm prod renorm softmax "
        "std std_mean sum var var_mean"
    ),
    "weft.eager.functions.scattering": (
        "as_strided_scatter diag_embed diagflat diagonal_scatter index_copy index_put index_reduce "
        "masked_scatter put scatter_reduce select_scatter slice_scatter"
    ),
    "weft.eager.functions.shape": (
        "broadcast_to cat chunk concat concatenate flatten flip masked_fill movedim "
        "movedim=moveaxis permute ravel repeat_interleave reshape roll split squeeze stack t tile "
        "transpose transpose=swapaxes transpose=swapdims tril triu unbind unflatten unsqueeze"
    ),
    "weft.eager.functions.special": (
        "copysign deg2rad digamma erfc erfinv fmax fmin frac frexp gcd heaviside i0 igamma igammac "
        "isneginf isposinf lcm ldexp lgamma logaddexp2 logit mvlgamma nextafter polygamma rad2deg "
        "signbit sinc xlogy"
    ),
    "weft.eager.functions.splitting": (
        "alias_copy as_strided_copy broadcast_shapes broadcast_tensors diagonal_copy dsplit "
        "expand_copy hsplit narrow_copy permute_copy select_copy split_copy split_with_sizes "
        "split_with_sizes_copy squeeze_copy t_copy tensor_split transpose_copy unbind_copy "
        "unfold_copy unravel_index unsafe_chunk unsafe_split unsafe_split_with_sizes "
        "unsqueeze_copy view_copy vsplit"
    ),
    "weft.eager.functions.statistics": (
        "bincount corrcoef cov cumulative_trapezoid diff gradient histc histogram histogramdd "
        "trapezoid trapz unique unique_consecutive"
    ),
    "weft.eager.grad_mode": "enable_grad inference_mode is_grad_enabled no_grad set_grad_enabled",
    "weft.eager.layouts": (
        "channels_last channels_last_3d contiguous_format preserve_format strided"
    ),
    "weft.eager.program_cache": "cache_info",
    "weft.eager.promotion": "can_cast promote_types result_type",
    "weft.eager.tensor": "Size Tensor",
    "weft.eager.tracing.control_flow": "cond",
    "weft.eager.tracing.jit": "jit",
    "weft.eager.tracing.loops": "scan while_loop",
    "weft.eager.tracing.traced_module": "trace",
    "weft.eager.tracing.train_step": "TrainStep train_step",
    "weft.eager.tracing.transformations": "grad hessian jacobian jvp value_and_grad vjp vmap",
    "weft.nn.functional.activation": (
        "celu celu_ hardshrink prelu relu_ rrelu rrelu_ selu selu_ threshold threshold_"
    ),
    "weft.nn.functional.conv": (
        "bilinear conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d"
    ),
    "weft.nn.functional.ctc": "ctc_loss",
    "weft.nn.functional.distance": "cosine_similarity pairwise_distance pdist",
    "weft.nn.functional.dropout": "alpha_dropout dropout feature_alpha_dropout",
    "weft.nn.functional.loss": "binary_cross_entropy_with_logits kl_div poisson_nll_loss",
    "weft.nn.functional.margin_loss": (
        "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss triplet_margin_loss"
    ),
    "weft.nn.functional.normalization": "rms_norm",
    "weft.nn.functional.older": (
        "batch_norm constant_pad_nd embedding grid_sampler grid_sampler=grid_sampler_2d "
        "grid_sampler=grid_sampler_3d group_norm instance_norm layer_norm native_batch_norm "
        "native_layer_norm"
    ),
    "weft.nn.functional.padding": (
        "channel_shuffle channel_shuffle=native_channel_shuffle pixel_shuffle pixel_unshuffle"
    ),
    "weft.nn.functional.pooling": (
        "adaptive_avg_pool1d adaptive_max_pool1d_with_indices=adaptive_max_pool1d avg_pool1d "
        "max_pool1d max_pool1d_with_indices max_pool2d max_pool3d"
    ),
}
# Public name -> module, and the name there: ``t=T`` in the table is ``t`` of a module as ``T``.
_LAZY = {word.rpartition("=")[2]: (module, word.partition("=")[0])
         for module, names in NAMES.items() if module != __name__ for word in names.split()}
_SUBMODULES = tuple(NAMES[__name__].split())

# Old name -> the new one, until 0.3: docs/renamed.md.
_RENAMED = {
    "case": "op_case",
    "check_operator": "opcheck",
    "insert": "pass_at",
    "module_of": "trace",
    "recompute": "remat",
    "tune_model": "autotune",
}

# Classes that ``Executable`` replaces, until 0.3.
_EXECUTABLES = ("CompiledModel", "CompiledModule", "DynamicModel", "ForeignModel")

__all__ = sorted((*_LAZY, "__version__"))  # noqa: PLE0605 - a list of strings


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        module, attribute = _LAZY[name]
        value = getattr(_import(module), attribute)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return _import(f"weft.{name}")
    if name in _RENAMED:
        from weft.support.deprecation import renamed_attribute

        return renamed_attribute("weft", name, _RENAMED[name])
    if name in _EXECUTABLES:
        from weft.support.deprecation import warn_renamed

        warn_renamed(f"weft.{name}", "weft.Executable")
        return getattr(_import("weft.runtime.old_classes"), name)
    if name == "register_rule":
        return _import("weft.ir.rewrite.rules").register_rule
    from weft.support.suggestion import missing_attribute

    raise missing_attribute("weft", name, [*_LAZY, *_SUBMODULES])


def _import(module: str) -> Any:
    try:
        with interrupts_held():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("weft."):
            raise
        # The distribution weft-runtime has the modules that run artifacts, and no others.
        raise errors.MissingToolError(
            f"{module} is not in this installation", got=f"no module {error.name}",
            help="pip install weft, which has the compiler") from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_SUBMODULES})
