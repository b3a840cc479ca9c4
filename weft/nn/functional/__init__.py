"""weft.nn.functional: the functions behind the layers, with torch's signatures."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.eager.functions.creation": "one_hot",
    "weft.nn.functional.activation": (
        "celu celu_ elu elu_ gelu glu gumbel_softmax hardshrink hardsigmoid hardswish hardtanh "
        "hardtanh_ leaky_relu leaky_relu_ log_softmax logsigmoid mish normalize prelu relu relu6 "
        "relu_ rrelu rrelu_ selu selu_ sigmoid silu softmax softmin softplus softshrink softsign "
        "tanh tanhshrink threshold threshold_"
    ),
    "weft.nn.functional.attention": "scaled_dot_product_attention",
    "weft.nn.functional.class_loss": "cross_entropy linear_cross_entropy nll_loss",
    "weft.nn.functional.conv": (
        "bilinear conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d "
        "conv_transpose3d linear"
    ),
    "weft.nn.functional.ctc": "ctc_loss",
    "weft.nn.functional.distance": "cosine_similarity pairwise_distance pdist",
    "weft.nn.functional.dropout": (
        "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout"
    ),
    "weft.nn.functional.embedding": "embedding embedding_bag",
    "weft.nn.functional.fold": "fold unfold",
    "weft.nn.functional.loss": (
        "binary_cross_entropy binary_cross_entropy_with_logits gaussian_nll_loss huber_loss kl_div "
        "l1_loss mse_loss poisson_nll_loss smooth_l1_loss"
    ),
    "weft.nn.functional.margin_loss": (
        "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss "
        "multilabel_margin_loss multilabel_soft_margin_loss soft_margin_loss triplet_margin_loss "
        "triplet_margin_with_distance_loss"
    ),
    "weft.nn.functional.multi_head": "multi_head_attention_forward",
    "weft.nn.functional.normalization": (
        "batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm"
    ),
    "weft.nn.functional.padding": "channel_shuffle pad pixel_shuffle pixel_unshuffle",
    "weft.nn.functional.pooling": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool1d_with_indices adaptive_max_pool2d adaptive_max_pool2d_with_indices "
        "adaptive_max_pool3d adaptive_max_pool3d_with_indices avg_pool1d avg_pool2d avg_pool3d "
        "lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool1d_with_indices max_pool2d "
        "max_pool2d_with_indices max_pool3d max_pool3d_with_indices"
    ),
    "weft.nn.functional.resampling": (
        "affine_grid grid_sample interpolate upsample upsample_bilinear upsample_nearest"
    ),
    "weft.nn.functional.unpooling": (
        "fractional_max_pool2d fractional_max_pool2d_with_indices fractional_max_pool3d "
        "fractional_max_pool3d_with_indices max_unpool1d max_unpool2d max_unpool3d"
    ),
}
load_names_lazily(__name__, NAMES)
