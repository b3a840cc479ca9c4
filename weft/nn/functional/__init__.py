"""weft.nn.functional: the functions behind the layers, with torch's signatures."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.nn.functional.activation": (
        "celu elu gelu glu gumbel_softmax hardshrink hardsigmoid hardswish hardtanh leaky_relu "
        "log_softmax logsigmoid mish normalize prelu relu relu6 rrelu selu sigmoid silu softmax "
        "softmin softplus softshrink softsign tanh tanhshrink threshold"
    ),
    "weft.nn.functional.attention": "scaled_dot_product_attention",
    "weft.nn.functional.conv": (
        "bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d linear"
    ),
    "weft.nn.functional.dropout": (
        "alpha_dropout dropout dropout1d dropout2d dropout3d feature_alpha_dropout"
    ),
    "weft.nn.functional.embedding": (
        "cosine_similarity embedding embedding_bag one_hot pairwise_distance"
    ),
    "weft.nn.functional.loss": (
        "binary_cross_entropy binary_cross_entropy_with_logits cross_entropy gaussian_nll_loss "
        "huber_loss kl_div l1_loss mse_loss nll_loss poisson_nll_loss smooth_l1_loss"
    ),
    "weft.nn.functional.margin_loss": (
        "cosine_embedding_loss hinge_embedding_loss margin_ranking_loss multi_margin_loss "
        "multilabel_soft_margin_loss soft_margin_loss triplet_margin_loss "
        "triplet_margin_with_distance_loss"
    ),
    "weft.nn.functional.normalization": (
        "batch_norm group_norm instance_norm layer_norm local_response_norm rms_norm"
    ),
    "weft.nn.functional.padding": (
        "channel_shuffle interpolate pad pixel_shuffle pixel_unshuffle upsample"
    ),
    "weft.nn.functional.pooling": (
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d avg_pool1d avg_pool2d avg_pool3d lp_pool1d "
        "lp_pool2d lp_pool3d max_pool1d max_pool2d max_pool3d"
    ),
}
load_names_lazily(__name__, NAMES)
